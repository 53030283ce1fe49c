/* An NCCL profiler plugin (version 5) and an NVTX tool in one: writes what it is told to the file TOOL_LOG, one line
 * each. Structures as in NCCL's and NVTX's headers, cut down to what is read. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static FILE *file(void) {
  static FILE *log;
  if (!log) {
    char name[512];
    snprintf(name, sizeof name, "%s", getenv("TOOL_LOG"));
    log = fopen(name, "a");
  }
  return log;
}
#define SAY(...) do { pthread_mutex_lock(&mutex); fprintf(file(), __VA_ARGS__); fflush(file()); pthread_mutex_unlock(&mutex); } while (0)

typedef struct {
  uint64_t type;
  void *parent;
  int rank;
  union {
    struct { _Bool captured; int depth; } group_api;
    struct { const char *func; size_t count; const char *datatype; int root; void *stream; _Bool captured; } coll_api;
    struct { const char *func; size_t count; const char *datatype; void *stream; _Bool captured; } p2p_api;
    struct { uint64_t seq; const char *func; const void *send; void *recv; size_t count; int root; const char *datatype;
             uint8_t channels, warps; const char *algo, *proto; void *group; } coll;
    struct { const char *func; void *buff; const char *datatype; size_t count; int peer; uint8_t channels; void *group; } p2p;
  };
} event;

static int only_rank(void *context) { return context == (void *)1; } /* rank 0 speaks */

static int init(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank, void *log) {
  (void)log;
  *context = (void *)(uintptr_t)(rank + 1);
  *mask = 0x806;
  if (rank == 0) SAY("init %s nodes %d ranks %d\n", name ? name : "-", nodes, ranks);
  return 0;
}
static const char *kind(uint64_t type) {
  switch (type) {
  case 1: return "Group";
  case 2: return "Coll";
  case 4: return "P2p";
  case 256: return "GroupApi";
  case 512: return "CollApi";
  case 1024: return "P2pApi";
  case 2048: return "KernelLaunch";
  }
  return "?";
}
static int start(void *context, void **handle, event *e) {
  *handle = NULL;
  if (!only_rank(context)) return 0;
  *handle = (void *)(uintptr_t)(e->type + 0x10000);
  const char *parent = e->parent ? kind((uint64_t)(uintptr_t)e->parent - 0x10000) : "-";
  switch (e->type) {
  case 2: SAY("start Coll %s #%lu %zu %s %s/%s in %s\n", e->coll.func, (unsigned long)e->coll.seq, e->coll.count, e->coll.datatype, e->coll.algo, e->coll.proto, parent); break;
  case 4: SAY("start P2p %s %zu %s peer %d in %s\n", e->p2p.func, e->p2p.count, e->p2p.datatype, e->p2p.peer, parent); break;
  case 256: SAY("start GroupApi depth %d\n", e->group_api.depth); break;
  case 512: SAY("start CollApi %s %zu %s root %d in %s\n", e->coll_api.func, e->coll_api.count, e->coll_api.datatype, e->coll_api.root, parent); break;
  case 1024: SAY("start P2pApi %s %zu %s in %s\n", e->p2p_api.func, e->p2p_api.count, e->p2p_api.datatype, parent); break;
  default: SAY("start %s in %s\n", kind(e->type), parent);
  }
  return 0;
}
static int stop(void *handle) {
  if (handle) SAY("stop %s\n", kind((uint64_t)(uintptr_t)handle - 0x10000));
  return 0;
}
static int state(void *handle, int number, void *arguments) {
  (void)arguments;
  if (handle) SAY("state %d\n", number);
  return 0;
}
static int finalize(void *context) {
  if (only_rank(context)) SAY("finalize\n");
  return 0;
}
struct { const char *name; void *functions[5]; } ncclProfiler_v5 = {"log", {init, start, stop, state, finalize}};

/* NVTX */
typedef struct { uint16_t version, size; uint32_t category; int32_t color_type; uint32_t color; int32_t payload_type, count;
                 uint64_t payload; int32_t message_type; const char *message; } attributes;
typedef struct { uint64_t schema; size_t size; const uint64_t *words; } payload;
typedef struct { size_t size; int (*get)(uint32_t, void ****, uint32_t *); } callbacks;
typedef struct { size_t id, count; intptr_t *slots; } segment;
typedef struct { uint16_t version, size, module, compat; size_t segments; segment *first; void *get; const uint16_t *types; } module;

static void say_payload(const payload *data, const char *what) {
  char words[200] = "";
  size_t used = 0;
  /* The communicator's number is another one each time. */
  for (size_t word = 1; word < data->size / 8 && used < sizeof words; word++)
    used += snprintf(words + used, sizeof words - used, " %lx", (unsigned long)data->words[word]);
  SAY("%s schema %lu size %zu%s\n", what, (unsigned long)(data->schema - (1 << 24)), data->size, words);
}
static const void *create(const char *name) { SAY("domain %s\n", name); return (void *)77; }
static const void *string(const void *domain, const char *text) { (void)domain; return text; }
static int push(const void *domain, const attributes *a) {
  SAY("push %s%s\n", a->message_type == 3 && domain == (void *)77 ? a->message : "?", a->payload_type == (int32_t)0xDFBD0009 && a->count == 1 ? " with payload" : "");
  if (a->payload) say_payload((const payload *)a->payload, "payload");
  return 0;
}
static int pop(const void *domain) { (void)domain; SAY("pop\n"); return 0; }
static int pop_payload(const void *domain, const payload *data, size_t count) {
  (void)domain; (void)count;
  say_payload(data, "pop with payload");
  return 0;
}
typedef struct { uint64_t mask; const char *name; uint64_t type, flags; const void *entries; size_t count, bytes, align; uint64_t id; void *ext; } schema;
static uint64_t register_schema(const void *domain, const schema *s) {
  (void)domain;
  SAY("schema %lu %s fields %zu bytes %zu\n", (unsigned long)(s->id - (1 << 24)), s->name, s->count, s->bytes);
  return s->id;
}
int InitializeInjectionNvtx2(const callbacks *(*table)(uint32_t)) {
  void ***slots;
  uint32_t size;
  if (!table(1)->get(5, &slots, &size) || size < 13) return 0;
  *slots[4] = push;
  *slots[5] = pop;
  *slots[10] = string;
  *slots[12] = create;
  return 1;
}
int InitializeInjectionNvtxExtension(module *m) {
  if (m->module != 2 || m->segments < 1 || m->first->count < 5 || m->types[0] != 28 || m->types[2 * 22] != sizeof(size_t)) return 0;
  m->first->slots[0] = (intptr_t)register_schema;
  m->first->slots[4] = (intptr_t)pop_payload;
  return 1;
}
