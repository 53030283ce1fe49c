/* How deep each way into the collector goes: every call on a thread of its own whose stack is painted, and measured from the
 * caller's frame down to the deepest byte that is not painted any more. No GPU, driver or NCCL: `stub_cupti.c` is CUPTI.
 * Prints "BYTES NAME", a line a call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK = 512 << 10, PAINT = 0xA5, SLOTS = 32 };

static void *collector, *cupti;
static unsigned char *stack;
static unsigned char *volatile frame;
static const char *exiting;

static void *symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (!found) {
    fprintf(stderr, "%s\n", dlerror());
    _exit(90);
  }
  return found;
}

static void say(const char *name) {
  unsigned char *lowest = stack;
  while (lowest < frame && *lowest == PAINT) lowest++;
  printf("%ld %s\n", (long)(frame - lowest), name);
  fflush(stdout);
}

typedef void (*body)(void);

static void *run(void *argument) {
  unsigned char here;
  frame = &here;
  ((body)argument)();
  return NULL;
}

/* Runs `what` on a painted stack. What the end of the thread takes counts too. */
static void measure(const char *name, body what) {
  if (!stack) stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(stack, PAINT, STACK);
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes) || pthread_attr_setstack(&attributes, stack, STACK) ||
      pthread_create(&thread, &attributes, run, (void *)what)) {
    fprintf(stderr, "no thread\n");
    _exit(90);
  }
  pthread_join(thread, NULL);
  say(name);
}

static void nothing(void) {}

/* The driver's and NVTX's ways in. */
static void inject(void) { ((int (*)(void))symbol(collector, "InitializeInjection"))(); }

static void *functions[6][SLOTS];
static void **table[6][SLOTS];
static int module(uint32_t number, void ****slots, uint32_t *count) {
  if (number >= 6) return 0;
  for (int slot = 0; slot < SLOTS; slot++) table[number][slot] = &functions[number][slot];
  *slots = table[number];
  *count = SLOTS;
  return 1;
}
static const void *export_table(uint32_t id) {
  static const struct {
    size_t size;
    int (*module)(uint32_t, void ****, uint32_t *);
  } callbacks = {sizeof callbacks, module};
  return id == 1 ? &callbacks : NULL;
}
static void inject_nvtx(void) {
  ((int (*)(const void *(*)(uint32_t)))symbol(collector, "InitializeInjectionNvtx2"))(export_table);
}

static struct {
  size_t id, slots;
  void **functions;
} segment;
static void *extension[16];
static void inject_extension(void) {
  segment.slots = 16;
  segment.functions = extension;
  static struct {
    uint16_t version, size, module, compatibility;
    size_t segments;
    void *first;
    void *get, *information;
  } information = {1, sizeof information, 2, 0x104, 1, &segment, NULL, NULL};
  ((int (*)(void *))symbol(collector, "InitializeInjectionNvtxExtension"))(&information);
}

/* NVTX's functions, by what they take. */
static struct {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const void *message;
} attributes = {3, 48, 1, 1, 0xff0000, 1, 0, 42, 1, "a range of the program"};
static const uint32_t wide[] = {'w', 'i', 'd', 'e', 0};
static char text[100001];
static struct {
  uint64_t schema;
  size_t bytes;
  const void *payload;
} payload;
static char many_bytes[2048];
static void *slot;
static size_t first;
static const void *second, *third;
static void call(void) {
  ((size_t(*)(size_t, const void *, const void *, size_t))slot)(first, second, third, 1);
}
static void nvtx(const char *name, void *function, size_t a, const void *b, const void *c) {
  if (!function) {
    fprintf(stderr, "%s is not taken\n", name);
    _exit(90);
  }
  slot = function;
  first = a;
  second = b;
  third = c;
  measure(name, call);
}

static void all_of_nvtx(void) {
  static const struct {
    uint64_t flags, kind;
    const char *name, *description;
    uint64_t detail, offset;
    const void *semantics, *reserved;
  } entries[] = {{0, 5, "number", NULL, 0, 0, NULL, NULL}, {0, 75, "text", NULL, 0, 8, NULL, NULL}};
  static struct {
    uint64_t mask;
    const char *name;
    uint64_t kind, flags;
    const void *entries;
    size_t count, bytes, alignment;
    uint64_t id;
    const void *extension;
  } schema = {0x1ff, "schema", 1, 0, entries, 2, 2048, 8, 1 << 24 | 99, NULL};
  static const struct {
    const char *name;
    uint64_t value;
    int8_t is_flag;
  } values[] = {{"one", 1, 0}, {"two", 2, 0}};
  static struct {
    uint64_t mask;
    const char *name;
    const void *entries;
    size_t count, bytes;
    uint64_t id;
    const void *extension;
  } enumeration = {0x3f, "enumeration", values, 2, 4, 1 << 24 | 98, NULL};
  static struct {
    uint16_t version, size;
    int32_t identifier_type;
    uint64_t identifier;
    int32_t message_type;
    const void *message;
  } resource = {1, 32, 0x40003, 77, 1, "a stream"};
  memset(text, 'x', sizeof text - 1);
  char name[64];
  for (int number = 1; number <= 15; number++) {
    snprintf(name, sizeof name, "nvtx core %d", number);
    size_t a = number == 1 || number == 4 || number == 8    ? (size_t)&attributes
               : number == 3 || number == 6 || number == 10 ? (size_t)wide
                                                            : (size_t)text;
    nvtx(name, functions[1][number], a, number == 13 || number == 15 ? (const void *)wide : text, NULL);
  }
  for (int number = 1; number <= 13; number++) {
    if (number == 7) continue;
    snprintf(name, sizeof name, "nvtx domains %d", number);
    const void *b = number == 6    ? (const void *)&resource
                    : number == 11 ? (const void *)wide
                    : number == 10 ? (const void *)text
                                   : (const void *)&attributes;
    size_t a = number == 12 ? (size_t)text : number == 13 ? (size_t)wide : 0;
    nvtx(name, functions[5][number], a, b, number == 9 ? (const void *)wide : text);
  }
  for (int number = 1; number <= 8; number++) {
    snprintf(name, sizeof name, "nvtx names of CUDA %d", number);
    nvtx(name, functions[2][number], 7, number % 2 ? (const void *)text : wide, NULL);
  }
  for (int number = 1; number <= 6; number++) {
    snprintf(name, sizeof name, "nvtx names of the runtime %d", number);
    nvtx(name, functions[4][number], 7, number % 2 ? (const void *)text : wide, NULL);
  }
  memcpy(many_bytes + 8, &(const char *){text}, 8);
  payload.schema = schema.id;
  payload.bytes = sizeof many_bytes;
  payload.payload = many_bytes;
  nvtx("nvtx payload schema", extension[0], 0, &schema, NULL);
  nvtx("nvtx payload enumeration", extension[1], 0, &enumeration, NULL);
  for (int number = 2; number <= 7; number++) {
    snprintf(name, sizeof name, "nvtx payload %d", number);
    if (number == 6) /* The end of a range: its number, then the payloads. */
      nvtx(name, extension[number], 0, (const void *)1, &payload);
    else
      nvtx(name, extension[number], 0, &payload, (const void *)1);
  }
}

/* NCCL's profiler plugin. */
static struct plugin {
  const char *name;
  int (*init)();
  int (*start)(void *, void **, void *);
  int (*stop)(void *);
  int (*state)(void *, int, void *);
  int (*finalize)(void *);
} *plugin;
static int version, mask;
static void *context, *handle;
static uint64_t descriptor[32], state_value[4];
static void nccl_init(void) {
  if (version == 4)
    plugin->init(&context, &mask, "name", (uint64_t)4, 1, 2, 0, NULL);
  else
    plugin->init(&context, (uint64_t)version, &mask, "name", 1, 2, 0, NULL);
}
static void nccl_start(void) { plugin->start(context, &handle, descriptor); }
static void nccl_state(void) { plugin->state(handle, 22, state_value); }
static void nccl_stop(void) { plugin->stop(handle); }
static void nccl_end(void) { plugin->finalize(context); }

static void all_of_nccl(void) {
  char name[64];
  for (version = 4; version <= 7; version++) {
    snprintf(name, sizeof name, "ncclProfiler_v%d", version);
    plugin = symbol(collector, name);
    snprintf(name, sizeof name, "nccl %d init", version);
    measure(name, nccl_init);
    for (int bit = 0; bit < (version == 4 ? 8 : 16); bit++) {
      memset(descriptor, 0, sizeof descriptor);
      descriptor[0] = UINT64_C(1) << bit;
      snprintf(name, sizeof name, "nccl %d start of %d", version, bit);
      measure(name, nccl_start);
      snprintf(name, sizeof name, "nccl %d state of %d", version, bit);
      measure(name, nccl_state);
      snprintf(name, sizeof name, "nccl %d stop of %d", version, bit);
      measure(name, nccl_stop);
    }
    snprintf(name, sizeof name, "nccl %d finalize", version);
    measure(name, nccl_end);
  }
}

/* CUPTI's callbacks. */
typedef void (*function)(void);
static function callback(const char *name) { return *(function *)symbol(cupti, name); }
static uint8_t *buffer;
static size_t bytes, records;
static uint32_t domain, id;
static struct {
  size_t context, handle;
  const void *graph;
} resource_data;
static const size_t graph[4] = {1, 2, 3, 4};
static const uint32_t enter[18];
static void request(void) {
  ((void (*)(uint8_t **, size_t *, size_t *))callback("stub_requested"))(&buffer, &bytes, &records);
}
static void complete(void) {
  ((void (*)(void *, uint32_t, uint8_t *, size_t, size_t))callback("stub_completed"))(NULL, 0, buffer, bytes, 4096);
}
static void request_second(void) {
  ((void (*)(uint8_t **, size_t *, size_t *, void *))callback("stub_requested_second"))(&buffer, &bytes, &records,
                                                                                        NULL);
}
static void complete_second(void) {
  ((void (*)(uint8_t *, size_t, size_t, void *))callback("stub_completed_second"))(buffer, bytes, 4096, NULL);
}
static void called(void) {
  const void *data = domain == 3 ? (const void *)&resource_data : enter;
  ((void (*)(void *, uint32_t, uint32_t, const void *))callback("stub_called"))(NULL, domain, id, data);
}

static void all_of_cupti(void) {
  if (callback("stub_requested_second")) {
    measure("cupti second request", request_second);
    measure("cupti second completed", complete_second);
  } else {
    measure("cupti request", request);
    measure("cupti completed", complete);
  }
  resource_data.graph = graph;
  static const uint32_t calls[][2] = {{1, 308}, {1, 309}, {1, 11}, {1, 322}, {1, 387}, {1, 389},
                                      {1, 544}, {1, 545}, {3, 9},  {3, 13},  {3, 17},  {3, 20},
                                      /* Launches, by the driver and the runtime. */
                                      {1, 307}, {2, 211}};
  char name[64];
  for (size_t place = 0; place < sizeof calls / sizeof *calls; place++) {
    domain = calls[place][0];
    id = calls[place][1];
    snprintf(name, sizeof name, "cupti callback %u %u", domain, id);
    measure(name, called);
  }
}

/* Children, and the end. */
static void forks(void) {
  pid_t child = fork();
  if (child == 0) {
    say("fork, in the child");
    _exit(0);
  }
  waitpid(child, NULL, 0);
}
/* Registered before the collector's handler, so it runs after it. */
static void at_end(void) {
  if (exiting) say(exiting);
}
static void ends(void) {
  exiting = "exit";
  exit(0);
}

int main(void) {
  const char *path = getenv("CUDA_INJECTION64_PATH"), *cupti_path = getenv("GPUTRACE_CUPTI");
  if (!path || !cupti_path) return 91;
  collector = dlopen(path, RTLD_NOW);
  if (!collector) return 92;
  atexit(at_end);
  measure("nothing", nothing);
  measure("InitializeInjection", inject);
  cupti = dlopen(cupti_path, RTLD_NOW | RTLD_NOLOAD);
  if (!cupti) return 93;
  measure("InitializeInjectionNvtx2", inject_nvtx);
  measure("InitializeInjectionNvtxExtension", inject_extension);
  all_of_nvtx();
  all_of_nccl();
  all_of_cupti();
  measure("fork", forks);
  measure("exit", ends);
  return 94;
}
