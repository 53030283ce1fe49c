/* Threads: `threads churn COUNT`, `threads launch THREADS SECONDS`, `threads contexts`, `threads nvtx`. */
#include "gpu.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

static atomic_int going = 1;
static atomic_long launched;

static void *once(void *text) {
  gpu_check(gpu_set_current(gpu_context), "cuCtxSetCurrent");
  nvtx_push(text);
  gpu_launch(1);
  nvtx_pop();
  return NULL;
}

static void *without_end(void *unused) {
  (void)unused;
  gpu_check(gpu_set_current(gpu_context), "cuCtxSetCurrent");
  while (going) {
    nvtx_push("step");
    gpu_launch(50);
    nvtx_pop();
    launched += 50;
    /* A bound on what waits for the device, as real queues have. */
    gpu_check(gpu_synchronize(), "cuCtxSynchronize");
  }
  return NULL;
}

static void *leaves_ranges_open(void *text) {
  nvtx_push(text);
  nvtx_push("inner");
  nvtx_mark("mark");
  return NULL;
}

/* Resident memory in KiB. */
static long resident(void) {
  long pages = 0, all;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld", &all, &pages) != 2) gpu_check(1, "statm");
  fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(int count, char **arguments) {
  const char *how = count > 1 ? arguments[1] : "";
  int number = count > 2 ? atoi(arguments[2]) : 0;
  double seconds = count > 3 ? atof(arguments[3]) : 1;
#define IS(name) (strcmp(how, name) == 0)
  if (IS("only-nvtx")) {
    /* NVTX and no CUDA: there is nothing to record. */
    for (int i = 0; i < 1000; i++) {
      nvtx_push("range");
      nvtx_pop();
    }
    printf("no GPU used\n");
    return 0;
  }
  if (IS("nvtx-first")) {
    nvtx_push("before");
    nvtx_push("opened before");
    nvtx_pop();
  }
  if (IS("only-opens")) {
    gpu_open();
    printf("no GPU used\n");
    return 0;
  }
  if (IS("init-fails")) {
    // Here, and not where the program is started: there the recorder would refuse it.
    setenv("SIMGPU_SCALE", "no number", 1);
    gpu_open();
    printf("cuInit: %d\n", gpu_init(0) != 0);
    return 5;
  }
  gpu_start();
  nvtx_attach();
  if (IS("nvtx-first")) nvtx_pop();
  if (IS("churn")) {
    for (int i = 0; i < number; i += 8) {
      pthread_t threads[8];
      for (int j = 0; j < 8; j++) gpu_check(pthread_create(&threads[j], NULL, once, "short"), "pthread_create");
      for (int j = 0; j < 8; j++) pthread_join(threads[j], NULL);
    }
  }
  if (IS("open-ranges")) {
    for (int i = 0; i < 100; i++) {
      pthread_t thread;
      gpu_check(pthread_create(&thread, NULL, leaves_ranges_open, "open"), "pthread_create");
      pthread_join(thread, NULL);
    }
  }
  if (IS("launch")) {
    pthread_t threads[64];
    struct timespec tick = {0, 100000000};
    long half = 0;
    for (int j = 0; j < number; j++) gpu_check(pthread_create(&threads[j], NULL, without_end, NULL), "pthread_create");
    for (int ticks = 0; ticks < seconds * 10; ticks++) {
      nanosleep(&tick, NULL);
      if (ticks == (int)(seconds * 5)) half = resident();
    }
    long end = resident();
    going = 0;
    for (int j = 0; j < number; j++) pthread_join(threads[j], NULL);
    /* On stderr: it differs from run to run. */
    fprintf(stderr, "gputrace: launched %ld resident_kib %ld then %ld\n", (long)launched, half, end);
  }
  if (IS("contexts")) {
    /* Each device, one after another, and back. */
    for (int device = 0; device < 4; device++) {
      gpu_use_device(device);
      gpu_work("device", 10 + device);
    }
  }
  gpu_work("done", 10);
  return 0;
}
