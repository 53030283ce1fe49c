/* Uses all of NVTX that a recorder hears of, through NVIDIA's own headers, after starting CUDA as any program does. */
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <wchar.h>

#include <nvtx3/nvToolsExtCuda.h>

static void *cuda;

static void check(int failed, const char *what) {
    if (failed) {
        fprintf(stderr, "%s failed\n", what);
        exit(1);
    }
}

static void *function(const char *name) {
    void *found = dlsym(cuda, name);
    check(!found, name);
    return found;
}

struct payload {
    uint64_t bytes;
    int32_t level;
    float share;
    const char *note;
    int32_t parts[3];
    char tag[8];
};

static void *pushing(void *argument) {
    long number = (long)argument;
    char name[32];
    for (int i = 0; i < 1000; ++i) {
        snprintf(name, sizeof name, "thread %ld", number);
        nvtxRangePushA(name);
        memset(name, 'x', sizeof name); /* the text need not stay */
        nvtxRangePop();
    }
    return NULL;
}

int main(void) {
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    check(!cuda, "libcuda.so.1");
    CUcontext context;
    CUstream stream;
    check(((int (*)(unsigned))function("cuInit"))(0), "cuInit");
    check(((int (*)(CUcontext *, CUdevice))function("cuDevicePrimaryCtxRetain"))(&context, 0), "cuDevicePrimaryCtxRetain");
    check(((int (*)(CUcontext))function("cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
    check(((int (*)(CUstream *, unsigned))function("cuStreamCreate"))(&stream, 1), "cuStreamCreate");

    nvtxDomainHandle_t domain = nvtxDomainCreateA("domain");
    nvtxNameCategoryA(3, "category of the default domain");
    nvtxDomainNameCategoryA(domain, 3, "category of the domain");
    nvtxNameOsThreadA((uint32_t)syscall(SYS_gettid), "main thread");
    nvtxNameCuDeviceA(0, "device");
    nvtxNameCuContextA(context, "context");
    nvtxNameCuStreamA(stream, "stream");
    nvtxResourceAttributes_t resource = {0};
    resource.version = NVTX_VERSION;
    resource.size = NVTX_RESOURCE_ATTRIB_STRUCT_SIZE;
    resource.identifierType = NVTX_RESOURCE_TYPE_GENERIC_HANDLE;
    resource.identifier.ullValue = 77;
    resource.messageType = NVTX_MESSAGE_TYPE_ASCII;
    resource.message.ascii = "mutex";
    nvtxDomainResourceCreate(domain, &resource);

    /* All types of plain payloads, on marks. */
    nvtxEventAttributes_t event = {0};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = nvtxDomainRegisterStringA(domain, "registered");
    event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    event.payload.ullValue = 18446744073709551615ull;
    nvtxDomainMarkEx(domain, &event);
    event.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    event.payload.llValue = -9007199254740993ll;
    nvtxDomainMarkEx(domain, &event);
    event.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
    event.payload.dValue = 0.5;
    nvtxDomainMarkEx(domain, &event);
    event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT32;
    event.payload.uiValue = 4294967295u;
    nvtxDomainMarkEx(domain, &event);
    event.payloadType = NVTX_PAYLOAD_TYPE_INT32;
    event.payload.iValue = -7;
    nvtxDomainMarkEx(domain, &event);
    event.payloadType = NVTX_PAYLOAD_TYPE_FLOAT;
    event.payload.fValue = 0.25f;
    nvtxDomainMarkEx(domain, &event);

    /* Ranges of two domains that do not nest, and one that ends on another thread's behalf. */
    event.payloadType = NVTX_PAYLOAD_UNKNOWN;
    event.colorType = NVTX_COLOR_ARGB;
    event.color = 0xff123456;
    event.category = 3;
    nvtxRangePushA("default");
    nvtxDomainRangePushEx(domain, &event);
    nvtxRangePop();
    nvtxDomainRangePop(domain);
    nvtxRangeId_t id = nvtxRangeStartW(L"wide \u00e4");
    nvtxRangeEnd(id);

    /* A schema with all that it may hold, and an enumeration. */
    const nvtxPayloadEnum_t levels[] = {{"LOW", 0, 0}, {"HIGH", 2, 0}};
    nvtxPayloadEnumAttr_t enumeration = {0};
    enumeration.fieldMask = NVTX_PAYLOAD_ENUM_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_ENUM_ATTR_FIELD_NUM_ENTRIES |
                            NVTX_PAYLOAD_ENUM_ATTR_FIELD_SIZE;
    enumeration.name = "level";
    enumeration.entries = levels;
    enumeration.numEntries = 2;
    enumeration.sizeOfEnum = sizeof(int32_t);
    const uint64_t level = nvtxPayloadEnumRegister(domain, &enumeration);
    const nvtxPayloadSchemaEntry_t entries[] = {
        {0, NVTX_PAYLOAD_ENTRY_TYPE_UINT64, "bytes", NULL, 0, offsetof(struct payload, bytes), NULL, NULL},
        {0, level, "level", NULL, 0, offsetof(struct payload, level), NULL, NULL},
        {0, NVTX_PAYLOAD_ENTRY_TYPE_FLOAT, "share", NULL, 0, offsetof(struct payload, share), NULL, NULL},
        {NVTX_PAYLOAD_ENTRY_FLAG_EVENT_MESSAGE, NVTX_PAYLOAD_ENTRY_TYPE_CSTRING, "note", NULL, 0,
         offsetof(struct payload, note), NULL, NULL},
        {NVTX_PAYLOAD_ENTRY_FLAG_ARRAY_FIXED_SIZE, NVTX_PAYLOAD_ENTRY_TYPE_INT32, "parts", NULL, 3,
         offsetof(struct payload, parts), NULL, NULL},
        {NVTX_PAYLOAD_ENTRY_FLAG_ARRAY_FIXED_SIZE, NVTX_PAYLOAD_ENTRY_TYPE_CHAR, "tag", NULL, 8,
         offsetof(struct payload, tag), NULL, NULL},
    };
    nvtxPayloadSchemaAttr_t schema = {0};
    schema.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                       NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                       NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE;
    schema.name = "struct payload";
    schema.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
    schema.entries = entries;
    schema.numEntries = 6;
    schema.payloadStaticSize = sizeof(struct payload);
    const uint64_t known = nvtxPayloadSchemaRegister(domain, &schema);
    struct payload payload = {18446744073709551614ull, 2, 0.75f, "a note", {1, -2, 3}, "tag"};
    nvtxPayloadData_t data = {known, sizeof payload, &payload};
    nvtxRangePushPayload(domain, &data, 1);
    payload.note = "at the end";
    nvtxRangePopPayload(domain, &data, 1);
    nvtxMarkPayload(domain, &data, 1);

    pthread_t threads[4];
    for (long i = 0; i < 4; ++i)
        check(pthread_create(&threads[i], NULL, pushing, (void *)i), "pthread_create");
    for (int i = 0; i < 4; ++i)
        pthread_join(threads[i], NULL);
    nvtxDomainDestroy(domain);
    return 0;
}
