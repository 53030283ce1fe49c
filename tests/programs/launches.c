/* A loop of launches: what recording costs is measured around it.
 *
 * launches STEPS KERNELS_A_STEP [NANOSECONDS_A_KERNEL]
 *
 * Each step launches its kernels and waits for them, inside an NVTX range "step N" with a range around each tenth kernel. With
 * NANOSECONDS_A_KERNEL the launches keep that pace: a step lasts at least so long times its kernels, and the CPU spins in
 * between. Prints each step's nanoseconds, one a line. */
#include "gpu.h"
#include <time.h>

static int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int count, char **words) {
  if (count < 3) return 2;
  int steps = atoi(words[1]), kernels = atoi(words[2]);
  long pace_ns = count > 3 ? atol(words[3]) : 0;
  int64_t *took = calloc(steps + 1, sizeof *took);
  gpu_start();
  nvtx_attach();
  for (int step = 0; step < steps; step++) {
    char name[32];
    snprintf(name, sizeof name, "step %d", step);
    int64_t began = now_ns();
    nvtx_push(name);
    for (int kernel = 0; kernel < kernels; kernel++) {
      int is_marked = kernel % 10 == 0;
      if (is_marked) nvtx_push("part");
      gpu_launch(1);
      if (is_marked) nvtx_pop();
      if (pace_ns)
        while (now_ns() < began + (kernel + 1) * pace_ns) {
        }
    }
    gpu_check(gpu_synchronize(), "cuCtxSynchronize");
    nvtx_pop();
    took[step] = now_ns() - began;
  }
  for (int step = 0; step < steps; step++) printf("%lld\n", (long long)took[step]);
  return 0;
}
