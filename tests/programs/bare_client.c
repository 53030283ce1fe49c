/* The least that a client of CUPTI can be: it asks for the same records as a recorder, and throws its buffers away.
 *
 * A shared library for CUDA_INJECTION64_PATH. Kinds are CUPTI_ACTIVITY_KIND_* of cupti_activity.h; BARE_CALLS lists the
 * callback ids of driver calls to record, comma-separated (else none are). */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define BUFFER_BYTES (4 << 20)
enum { MOST_FREE = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *free_buffers[MOST_FREE];
static int free_count;
static uint32_t (*flush_all)(uint32_t);

static void requested(uint8_t **buffer, size_t *size, size_t *most_records) {
  pthread_mutex_lock(&lock);
  *buffer = free_count > 0 ? free_buffers[--free_count] : NULL;
  pthread_mutex_unlock(&lock);
  if (!*buffer) *buffer = malloc(BUFFER_BYTES);
  *size = *buffer ? BUFFER_BYTES : 0;
  *most_records = 0;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
  (void)context, (void)stream, (void)size, (void)valid;
  pthread_mutex_lock(&lock);
  int is_kept = free_count < MOST_FREE;
  if (is_kept) free_buffers[free_count++] = buffer;
  pthread_mutex_unlock(&lock);
  if (!is_kept) free(buffer);
}

static void ignored(void *data, uint32_t domain, uint32_t id, const void *more) {
  (void)data, (void)domain, (void)id, (void)more;
}

static void *flush_for_ever(void *none) {
  for (;;) {
    usleep(450000);
    flush_all(0);
  }
  return none;
}

int InitializeInjection(void) {
  static const uint32_t kinds[] = {8, 9, 37, 10, 1, 22, 2, 38, 17, 39};
  void *cupti = dlopen("libcupti.so.13", RTLD_NOW);
  if (!cupti) return 1;
  uint32_t (*subscribe)(void **, void *, void *) = dlsym(cupti, "cuptiSubscribe");
  uint32_t (*register_callbacks)(void *, void *) = dlsym(cupti, "cuptiActivityRegisterCallbacks");
  uint32_t (*enable)(uint32_t) = dlsym(cupti, "cuptiActivityEnable");
  uint32_t (*enable_call)(uint32_t, uint8_t) = dlsym(cupti, "cuptiActivityEnableDriverApi");
  uint32_t (*attribute)(uint32_t, size_t *, void *) = dlsym(cupti, "cuptiActivitySetAttribute");
  flush_all = dlsym(cupti, "cuptiActivityFlushAll");
  void *subscriber;
  if (!subscribe || !register_callbacks || !enable || !flush_all || subscribe(&subscriber, ignored, NULL)) return 1;
  size_t size = 1;
  uint8_t yes = 1;
  /* CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER: nobody reads what is in them. */
  if (attribute) attribute(5, &size, &yes);
  register_callbacks(requested, completed);
  for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) enable(kinds[i]);
  const char *calls = getenv("BARE_CALLS");
  while (enable_call && calls && *calls) {
    char *end;
    unsigned long id = strtoul(calls, &end, 10);
    if (end == calls) break;
    enable_call((uint32_t)id, 1);
    calls = *end ? end + 1 : end;
  }
  pthread_t thread;
  pthread_create(&thread, NULL, flush_for_ever, NULL);
  return 1;
}
