/* A loop that never waits for the GPU: its host is through with all steps before the GPU is through with the first.
 *
 * ahead STEPS NUMBERS
 *
 * Fills an array of NUMBERS, and before the first step launches a kernel that is slow in it. Each step launches, inside an NVTX
 * range "step N", two kernels, and every second one a third from another thread; one more is launched behind the last. */
#include "gpu.h"
#include <pthread.h>

static void launch(uint64_t memory, int numbers) {
  float factor = 1.0f;
  void *parameters[] = {&memory, &factor, &numbers};
  gpu_check(gpu_kernel(gpu_add, (numbers + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL), "cuLaunchKernel");
}

static uint64_t memory;
static int numbers;

static void *elsewhere(void *nothing) {
  gpu_check(gpu_set_current(gpu_context), "cuCtxSetCurrent");
  launch(memory, numbers / 2);
  return nothing;
}

int main(int count, char **words) {
  if (count < 3) return 2;
  int steps = atoi(words[1]);
  numbers = atoi(words[2]);
  gpu_start();
  nvtx_attach();
  gpu_check(gpu_allocate(&memory, numbers * sizeof(float)), "cuMemAlloc");
  launch(memory, numbers);
  for (int step = 0; step < steps; step++) {
    char name[32];
    snprintf(name, sizeof name, "step %d", step);
    nvtx_push(name);
    launch(memory, numbers);
    if (step % 2) {
      pthread_t thread;
      gpu_check(pthread_create(&thread, NULL, elsewhere, NULL), "pthread_create");
      gpu_check(pthread_join(thread, NULL), "pthread_join");
    }
    launch(memory, numbers / 2);
    nvtx_pop();
  }
  launch(memory, numbers);
  gpu_check(gpu_synchronize(), "cuCtxSynchronize");
  return 0;
}
