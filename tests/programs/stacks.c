/* Launches from many places: `stacks sites`, `stacks deep LEVELS`, `stacks small`, `stacks library FIRST SECOND TIMES`, `stacks signal`,
 * `stacks fork`, `stacks threads THREADS LAUNCHES`, `stacks many BITS`, `stacks cost LAUNCHES LEVELS`.
 * With -DLIBRARY=NAME it is a library with one function of that name. */
#ifdef LIBRARY
void LIBRARY(void (*call)(int)) {
  call(1);
  __asm__ volatile("");
}
#else
#include "gpu.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

/* A function with a frame of its own: what it calls is not the last that it does. */
#define SITE __attribute__((noinline, noclone)) static
#define STAYS __asm__ volatile("" ::: "memory")

SITE void inner(int count) {
  gpu_launch(count);
  STAYS;
}
SITE void first_site(void) {
  inner(3);
  STAYS;
}
SITE void second_site(void) {
  inner(5);
  float numbers[GPU_NUMBERS] = {1, 1, 1, 1};
  gpu_check(gpu_upload(gpu_memory, numbers, sizeof numbers), "cuMemcpyHtoD");
  STAYS;
}
SITE void deep(int levels) {
  if (levels > 0)
    deep(levels - 1);
  else
    inner(1);
  STAYS;
}

/* One of 2^BITS ways to come to a launch. */
SITE void way(int bits, unsigned number);
SITE void even(int bits, unsigned number) {
  way(bits - 1, number >> 1);
  STAYS;
}
SITE void odd(int bits, unsigned number) {
  way(bits - 1, number >> 1);
  STAYS;
}
SITE void way(int bits, unsigned number) {
  if (bits == 0)
    inner(1);
  else if (number & 1)
    odd(bits, number);
  else
    even(bits, number);
  STAYS;
}

static void handler(int number) {
  (void)number;
  inner(2);
  STAYS;
}

static void *on_thread(void *count) {
  gpu_check(gpu_set_current(gpu_context), "cuCtxSetCurrent");
  for (int i = 0; i < *(int *)count; i++) way(3, (unsigned)i);
  return NULL;
}

static void run_thread(size_t stack_bytes, int threads, int count) {
  pthread_t all[64];
  pthread_attr_t attributes;
  gpu_check(pthread_attr_init(&attributes) || pthread_attr_setstacksize(&attributes, stack_bytes), "a thread's stack");
  for (int i = 0; i < threads; i++) gpu_check(pthread_create(&all[i], &attributes, on_thread, &count), "pthread_create");
  for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
}

/* Loads a library, launches through it, and unloads it. */
SITE void through(const char *path, const char *name) {
  void *library = dlopen(path, RTLD_NOW);
  if (!library) gpu_check(1, dlerror());
  void (*function)(void (*)(int)) = (void (*)(void (*)(int)))dlsym(library, name);
  gpu_check(function == NULL, name);
  function(inner);
  gpu_check(dlclose(library), "dlclose");
  STAYS;
}

int main(int count, char **arguments) {
  const char *how = count > 1 ? arguments[1] : "";
  int number = count > 2 ? atoi(arguments[2]) : 0;
#define IS(name) (strcmp(how, name) == 0)
  gpu_start();
  if (IS("sites")) {
    first_site();
    second_site();
    first_site();
  } else if (IS("deep")) {
    deep(number);
  } else if (IS("small")) {
    run_thread(64 << 10, 1, 8);
  } else if (IS("library")) {
    for (int i = 0; i < atoi(arguments[4]); i++) {
      through(arguments[2], "first_library");
      /* As long as the recorder looks around at the most. */
      usleep(300000);
      through(arguments[3], "second_library");
      usleep(300000);
    }
  } else if (IS("signal")) {
    signal(SIGUSR1, handler);
    for (int i = 0; i < 3; i++) raise(SIGUSR1);
  } else if (IS("fork")) {
    first_site();
    pid_t child = fork();
    if (child == 0) {
      /* CUDA does not work here; what is called must return. */
      deep(-1);
      _exit(0);
    }
    waitpid(child, NULL, 0);
    second_site();
  } else if (IS("threads")) {
    run_thread(256 << 10, number, atoi(arguments[3]));
  } else if (IS("many")) {
    for (unsigned i = 0; i < 1u << number; i++) {
      way(number, i);
      if (i % 1024 == 0) gpu_check(gpu_synchronize(), "cuCtxSynchronize");
    }
  } else if (IS("cost")) {
    struct timespec begin, end;
    long calls = number, nanoseconds = 0;
    for (long i = 0; i < calls; i += 100) {
      gpu_check(gpu_synchronize(), "cuCtxSynchronize");
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
      for (int j = 0; j < 100; j++) deep(atoi(arguments[3]));
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
      nanoseconds += (end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec;
    }
    fprintf(stderr, "%ld ns a launch\n", nanoseconds / calls);
  }
  gpu_say("stacks");
  return 0;
}
#endif
