/* A program that profiles itself: it sets memory on a GPU, in the middle of that starts CUPTI as a client of its own, as
 * torch.profiler does, and says what it got.
 *
 *   second_client older|newer COUNT
 *
 * COUNT memsets before, COUNT while it profiles, COUNT after. "older" registers its buffers without subscribing (as Kineto
 * does), "newer" subscribes beside others. One line: the result of each of its calls that failed, the records that it got,
 * whether memory is what it should be. Linked with -DLINKED it names libcupti as a library that it needs.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { size_t size; const char *name; char *old; size_t old_size; uint8_t several, padding[7]; } subscriber_params;
enum { MEMSET = 2 };

static void *cuda, *cupti;
static int records, wrong;

static void *find(void *library, const char *name) {
  void *function = dlsym(library, name);
  if (!function) { fprintf(stderr, "no %s\n", name); exit(1); }
  return function;
}
#define CUDA(name, ...) do { int (*f)() = (int (*)())find(cuda, #name); int r = f(__VA_ARGS__); \
  if (r) { fprintf(stderr, #name ": %d\n", r); exit(1); } } while (0)
static void tell(const char *what, int result) { if (result) printf("%s=%d ", what, result); }

#ifdef LINKED
int cuptiActivityRegisterCallbacks(void *request, void *complete);
#endif

/* Buffers are never given back: one who takes over gets those of the client before, too, which are not its to free. */
static void requested(uint8_t **buffer, size_t *size, size_t *most) {
  *size = 1 << 16; *most = 0;
  *buffer = aligned_alloc(8, *size);
}
static void count(uint8_t *buffer, size_t valid, int (*next)(uint8_t *, size_t, uint32_t **)) {
  uint32_t *record = NULL;
  while (next(buffer, valid, &record) == 0)
    if (*record == MEMSET) __atomic_add_fetch(&records, 1, __ATOMIC_RELAXED);
}
static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
  (void)context; (void)stream; (void)size;
  count(buffer, valid, (int (*)(uint8_t *, size_t, uint32_t **))find(cupti, "cuptiActivityGetNextRecord"));
}

static void *subscriber;
static void requested_2(uint8_t **buffer, size_t *size, size_t *most, void *info) { (void)info; requested(buffer, size, most); }
static int next_2(uint8_t *buffer, size_t valid, uint32_t **record) {
  return ((int (*)(void *, uint8_t *, size_t, uint32_t **))find(cupti, "cuptiActivityGetNextRecord_v2"))(subscriber, buffer, valid, record);
}
static void completed_2(uint8_t *buffer, size_t size, size_t valid, void *info) {
  (void)size; (void)info;
  count(buffer, valid, next_2);
}
static void called(void *data, int domain, uint32_t id, const void *what) { (void)data; (void)domain; (void)id; (void)what; }

static void work(uint64_t memory, int times) {
  unsigned char back[4096];
  for (int i = 0; i < times; i++) CUDA(cuMemsetD8_v2, memory, (unsigned char)(i + 1), sizeof back);
  CUDA(cuCtxSynchronize);
  CUDA(cuMemcpyDtoH_v2, back, memory, sizeof back);
  for (size_t i = 0; i < sizeof back; i++) wrong += back[i] != (unsigned char)times;
}

int main(int arguments, char **argument) {
  if (arguments != 3) return 2;
  int older = strcmp(argument[1], "older") == 0, times = atoi(argument[2]);
  cuda = dlopen("libcuda.so.1", RTLD_NOW);
  cupti = dlopen("libcupti.so.13", RTLD_NOW);
  if (!cuda || !cupti) { fprintf(stderr, "%s\n", dlerror()); return 1; }
  void *context;
  uint64_t memory;
  CUDA(cuInit, 0);
  CUDA(cuDevicePrimaryCtxRetain, &context, 0);
  CUDA(cuCtxSetCurrent, context);
  CUDA(cuMemAlloc_v2, &memory, (size_t)4096);
  work(memory, times);
  int (*flush)(int) = (int (*)(int))find(cupti, "cuptiActivityFlushAll");
  if (older) {
#ifdef LINKED
    int registered = cuptiActivityRegisterCallbacks((void *)requested, (void *)completed);
#else
    int registered = ((int (*)(void *, void *))find(cupti, "cuptiActivityRegisterCallbacks"))((void *)requested, (void *)completed);
#endif
    tell("register", registered);
    tell("enable", ((int (*)(int))find(cupti, "cuptiActivityEnable"))(MEMSET));
  } else {
    subscriber_params params = { sizeof params, "second client", NULL, 0, 1, { 0 } };
    tell("subscribe", ((int (*)(void *, void *, void *, void *))find(cupti, "cuptiSubscribe_v2"))(&subscriber, (void *)called, NULL, &params));
    tell("register", ((int (*)(void *, void *, void *))find(cupti, "cuptiActivityRegisterCallbacks_v2"))(subscriber, (void *)requested_2, (void *)completed_2));
    tell("enable", ((int (*)(void *, int, void *))find(cupti, "cuptiActivityEnable_v2"))(subscriber, MEMSET, NULL));
  }
  work(memory, times);
  flush(1);
  if (!older) {
    tell("disable", ((int (*)(void *, int, void *))find(cupti, "cuptiActivityDisable_v2"))(subscriber, MEMSET, NULL));
    tell("unsubscribe", ((int (*)(void *))find(cupti, "cuptiUnsubscribe"))(subscriber));
  }
  work(memory, times);
  printf("records=%d wrong=%d\n", records, wrong);
  return 0;
}
