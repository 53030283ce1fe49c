/* The least of a CUDA program and of an NVTX client: what the programs of these tests are made of.
 *
 * The driver is opened as libcuda.so.1, NVTX's tool as NVTX_INJECTION64_PATH names it, both as real programs do.
 * Signatures are those of cuda.h and nvtxTypes.h. Whatever fails ends the program with status 90 and a line. */
#ifndef GPU_H
#define GPU_H
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPU_UNUSED __attribute__((unused))

static void *gpu_library;
static int (*gpu_init)(unsigned);
static int (*gpu_retain)(void **, int);
static int (*gpu_set_current)(void *);
static int (*gpu_synchronize)(void);
static int (*gpu_load)(void **, const void *);
static int (*gpu_function)(void **, void *, const char *);
static int (*gpu_allocate)(uint64_t *, size_t);
static int (*gpu_upload)(uint64_t, const void *, size_t);
static int (*gpu_download)(void *, uint64_t, size_t);
static int (*gpu_kernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                         void **);

static void *gpu_context, *gpu_add;
static uint64_t gpu_memory;
#define GPU_NUMBERS 4

static void gpu_check(int result, const char *what) {
  if (result == 0) return;
  fprintf(stderr, "%s: error %d\n", what, result);
  _exit(90);
}

static void *gpu_symbol(const char *name) {
  void *symbol = dlsym(gpu_library, name);
  gpu_check(symbol == NULL, name);
  return symbol;
}

/* Opens the driver; nothing of CUDA runs yet. */
static void gpu_open(void) {
  if (gpu_library) return;
  gpu_library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!gpu_library) gpu_check(1, dlerror());
  gpu_init = gpu_symbol("cuInit");
  gpu_retain = gpu_symbol("cuDevicePrimaryCtxRetain");
  gpu_set_current = gpu_symbol("cuCtxSetCurrent");
  gpu_synchronize = gpu_symbol("cuCtxSynchronize");
  gpu_load = gpu_symbol("cuModuleLoadData");
  gpu_function = gpu_symbol("cuModuleGetFunction");
  gpu_allocate = gpu_symbol("cuMemAlloc_v2");
  gpu_upload = gpu_symbol("cuMemcpyHtoD_v2");
  gpu_download = gpu_symbol("cuMemcpyDtoH_v2");
  gpu_kernel = gpu_symbol("cuLaunchKernel");
}

/* A context on the device, a kernel, and a few numbers to add to themselves. */
static void gpu_use_device(int device) {
  static const char code[] = ".version 8.1\n.target sm_80\n.address_size 64\n"
                             ".visible .entry scale(\n .param .u64 scale_param_0,\n .param .f32 scale_param_1,\n"
                             " .param .u32 scale_param_2\n)\n{\n ret;\n}\n";
  float zeros[GPU_NUMBERS] = {1, 1, 1, 1};
  void *module;
  gpu_check(gpu_retain(&gpu_context, device), "cuDevicePrimaryCtxRetain");
  gpu_check(gpu_set_current(gpu_context), "cuCtxSetCurrent");
  gpu_check(gpu_load(&module, code), "cuModuleLoadData");
  gpu_check(gpu_function(&gpu_add, module, "scale"), "cuModuleGetFunction");
  gpu_check(gpu_allocate(&gpu_memory, sizeof zeros), "cuMemAlloc");
  gpu_check(gpu_upload(gpu_memory, zeros, sizeof zeros), "cuMemcpyHtoD");
}

/* cuInit and device 0. */
static GPU_UNUSED void gpu_start(void) {
  gpu_open();
  gpu_check(gpu_init(0), "cuInit");
  gpu_use_device(0);
}

/* Launches kernels that multiply the numbers by `factor`. */
static GPU_UNUSED void gpu_launch_scaled(int count, float factor) {
  int numbers = GPU_NUMBERS;
  void *parameters[] = {&gpu_memory, &factor, &numbers};
  for (int i = 0; i < count; i++)
    gpu_check(gpu_kernel(gpu_add, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL), "cuLaunchKernel");
}

static GPU_UNUSED void gpu_launch(int count) { gpu_launch_scaled(count, 1.0f); }

/* Waits for the device and says what it computed: the same with and without a profiler. */
static GPU_UNUSED void gpu_say(const char *who) {
  float numbers[GPU_NUMBERS];
  gpu_check(gpu_synchronize(), "cuCtxSynchronize");
  gpu_check(gpu_download(numbers, gpu_memory, sizeof numbers), "cuMemcpyDtoH");
  printf("%s: %g %g\n", who, (double)numbers[0], (double)numbers[GPU_NUMBERS - 1]);
  fflush(stdout);
}

/* Launches, and says the result. */
static GPU_UNUSED void gpu_work(const char *who, int count) {
  gpu_launch(count - 1);
  gpu_launch_scaled(1, 2.0f);
  gpu_say(who);
}

/* NVTX: the slots of the core module that these programs call. */
enum { NVTX_MARK = 2, NVTX_PUSH = 9, NVTX_POP = 11, NVTX_SLOTS = 16 };
static void *nvtx_functions[NVTX_SLOTS];
static void **nvtx_table[NVTX_SLOTS];
static int nvtx_attached;

static int nvtx_module(uint32_t module, void ****table, uint32_t *count) {
  if (module != 1) return 0;
  for (int slot = 1; slot < NVTX_SLOTS; slot++) nvtx_table[slot] = &nvtx_functions[slot];
  *table = nvtx_table;
  if (count) *count = NVTX_SLOTS;
  return 1;
}

static const void *nvtx_export(uint32_t id) {
  static const struct {
    size_t size;
    int (*module)(uint32_t, void ****, uint32_t *);
  } callbacks = {sizeof callbacks, nvtx_module};
  return id == 1 ? &callbacks : NULL;
}

/* Loads the tool; call it before threads begin. */
static GPU_UNUSED void nvtx_attach(void) {
  const char *path = getenv("NVTX_INJECTION64_PATH");
  nvtx_attached = 1;
  if (!path || !*path) return;
  void *tool = dlopen(path, RTLD_LAZY);
  if (!tool) return;
  int (*initialize)(const void *(*)(uint32_t)) = dlsym(tool, "InitializeInjectionNvtx2");
  if (initialize && !initialize(nvtx_export)) memset(nvtx_functions, 0, sizeof nvtx_functions);
}

static GPU_UNUSED void nvtx_push(const char *text) {
  if (!nvtx_attached) nvtx_attach();
  int (*push)(const char *) = nvtx_functions[NVTX_PUSH];
  if (push) push(text);
}

static GPU_UNUSED void nvtx_pop(void) {
  int (*pop)(void) = nvtx_functions[NVTX_POP];
  if (pop) pop();
}

static GPU_UNUSED void nvtx_mark(const char *text) {
  if (!nvtx_attached) nvtx_attach();
  void (*mark)(const char *) = nvtx_functions[NVTX_MARK];
  if (mark) mark(text);
}
#endif
