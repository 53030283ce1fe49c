"""Functions of Python around launches, on two threads; without a recorder the same and nothing of it."""
import threading

import gpu
import gputrace.nvtx as nvtx
from gputrace.functions import functions

program = gpu.Gpu()


def launch(count):
    program.launch(count)


def first():
    launch(3)


def second(levels):
    if levels:
        return second(levels - 1)
    launch(5)


def generator():
    for count in (1, 2):
        launch(count)
        yield count
    try:
        yield 0
    except ValueError:
        launch(7)


def raises():
    try:
        launch(1)
        raise KeyError
    finally:
        launch(1)


class Model:
    def forward(self):
        launch(11)


def on_thread():
    program.use()
    first()


@functions()
def main():
    first()
    second(3)
    numbers = generator()
    assert [next(numbers), next(numbers), next(numbers)] == [1, 2, 0]
    try:
        numbers.throw(ValueError())
    except StopIteration:
        pass
    try:
        raises()
    except KeyError:
        pass
    Model().forward()
    thread = threading.Thread(target=on_thread)
    thread.start()
    thread.join()
    first()


main()
# Behind it nothing is marked.
first()
print("launched", program.read())
