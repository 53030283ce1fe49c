"""Steps and what is captured, as `gputrace` for Python marks them, around launches of kernels."""
import gpu
import gputrace

program = gpu.Gpu()
with gputrace.step(7):
    program.launch(1)
with gputrace.capture():
    program.launch(2)
with gputrace.Profile(gputrace.schedule(wait=2, warmup=1, active=2, repeat=1)) as profile:
    for number in range(8):
        with gputrace.range(f"work of {number}"):
            program.launch(10)
            program.read()
        profile.step()
# As callbacks use it: what is between steps is in none.
profile = gputrace.Profile(first=20)
for _ in range(2):
    profile.start()
    profile.start()
    program.launch(100)
    profile.end()
    profile.end()
    program.launch(1000)
profile.stop()
profile.stop()
print("launched", program.read())
