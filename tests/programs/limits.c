/* A program under limits that it sets itself, before the GPU's driver starts: `limits WHAT NUMBER`. */
#include "gpu.h"
#include <locale.h>
#include <pthread.h>
#include <sys/resource.h>

/* What of the address space is in use, in bytes. */
static rlim_t address_space(void) {
  unsigned long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%lu", &pages) != 1) gpu_check(1, "statm");
  fclose(file);
  return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void work(void) {
  gpu_start();
  for (int i = 0; i < 10; i++) {
    gpu_launch(100);
    usleep(60000);
  }
  gpu_work("worked", 100);
}

static void *work_in_thread(void *nothing) {
  work();
  return nothing;
}

int main(int count, char **arguments) {
  const char *what = count > 1 ? arguments[1] : "";
  long number = count > 2 ? atol(arguments[2]) : 0;
#define IS(name) (strcmp(what, name) == 0)
  struct rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  setlocale(LC_ALL, "");
  gpu_open();
  if (IS("address-space")) {
    /* So many MiB more than it has. */
    struct rlimit limit;
    limit.rlim_cur = limit.rlim_max = address_space() + ((rlim_t)number << 20);
    setrlimit(RLIMIT_AS, &limit);
  }
  if (IS("files")) {
    struct rlimit limit = {(rlim_t)number, (rlim_t)number};
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (IS("stack")) {
    /* The default of new threads' stacks. */
    struct rlimit limit = {(rlim_t)number << 10, (rlim_t)number << 10};
    setrlimit(RLIMIT_STACK, &limit);
  }
  if (IS("closes")) {
    /* As NCCL does with its plugin, before the driver has loaded it and after. */
    const char *plugin = getenv("NCCL_PROFILER_PLUGIN");
    for (int i = 0; i < 100; i++) {
      void *library = dlopen(plugin ? plugin : "libm.so.6", RTLD_NOW | RTLD_LOCAL);
      if (!library || dlclose(library)) gpu_check(1, "dlopen");
      if (i == 50) gpu_start();
      if (i > 50) gpu_launch(10);
    }
    gpu_say("closed");
    /* And the driver itself. */
    dlclose(gpu_library);
    return 0;
  }
  if (IS("thread-stack")) {
    /* Everything, the first cuInit too, on a thread with a stack of so many KiB. */
    pthread_attr_t attributes;
    pthread_t thread;
    gpu_check(pthread_attr_init(&attributes), "pthread_attr_init");
    gpu_check(pthread_attr_setstacksize(&attributes, (size_t)number << 10), "pthread_attr_setstacksize");
    gpu_check(pthread_create(&thread, &attributes, work_in_thread, NULL), "pthread_create");
    gpu_check(pthread_join(thread, NULL), "pthread_join");
    return 0;
  }
  work();
  return 0;
}
