"""A Python program that uses the GPU and ends, or has children, as its argument says."""
import concurrent.futures
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import gpu


def a_worker(number):
    # Workers take turns as they like: their results are for the parent to say.
    work = gpu.Gpu(number)
    work.launch(20, 2.0)
    return work.read()


def a_loader(number, queue):
    # As a data loader's workers: no GPU, forked from a process that uses it.
    queue.put(sum(range(number)))


def in_a_pool(method):
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        print(sorted(pool.map(a_worker, range(2), chunksize=1)), flush=True)


def main(how):
    if how == "pool-fork":
        in_a_pool("fork")
    work = gpu.Gpu()
    work.work("worked", 100)
    if how == "pool-spawn":
        in_a_pool("spawn")
    elif how == "pool-forkserver":
        in_a_pool("forkserver")
    elif how == "executor":
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as executor:
            print(sorted(executor.map(a_worker, range(2))), flush=True)
    elif how == "loaders":
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        loaders = [context.Process(target=a_loader, args=(number, queue)) for number in range(4)]
        for loader in loaders:
            loader.start()
        for _ in range(4):
            work.launch(25)
        print(sorted(queue.get() for _ in loaders))
        for loader in loaders:
            loader.join()
        print([loader.exitcode for loader in loaders], flush=True)
    elif how == "subprocess":
        lines = subprocess.run(["sh", "-c", "cat; echo of the shell"], input=b"a word ", capture_output=True, check=True)
        print(lines.stdout.decode(), end="", flush=True)
        again = subprocess.run([sys.executable, __file__, "exit"], check=False)
        print("again:", again.returncode, flush=True)
    elif how == "os.fork":
        child = os.fork()
        if child == 0:
            sys.exit(9)
        print("child:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    elif how == "exit":
        sys.exit(3)
    elif how == "exit-in-a-thread":
        # Ends the thread alone.
        thread = threading.Thread(target=sys.exit, args=(4,))
        thread.start()
        thread.join()
    elif how == "os._exit":
        os._exit(4)
    elif how == "worker":
        gpu.end_as_a_worker()
    elif how == "exception":
        raise ValueError("uncaught")
    elif how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)
    elif how == "interrupt-caught":
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(30)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    elif how == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)
    elif how == "terminate-handled":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(12))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)
    elif how == "abort":
        os.abort()
    elif how == "daemon-thread":
        # Alive at exit, and launching.
        def launches():
            other = gpu.Gpu()
            while True:
                other.launch(5)
                time.sleep(0.001)

        threading.Thread(target=launches, daemon=True).start()
        time.sleep(0.2)


if __name__ == "__main__":
    main(sys.argv[1])
