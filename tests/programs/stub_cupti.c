/* A libcupti that records nothing and needs next to no stack: it keeps the callbacks it is given, for stack.c to call.
 * STUB_CUPTI_VERSION decides which way the collector takes. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef void (*function)(void);
function stub_called, stub_requested, stub_completed, stub_requested_second, stub_completed_second;

uint32_t cuptiGetVersion(uint32_t *version) {
  const char *text = getenv("STUB_CUPTI_VERSION");
  *version = text ? (uint32_t)atol(text) : 28;
  return 0;
}
uint32_t cuptiSubscribe(size_t *subscriber, function called) {
  stub_called = called;
  *subscriber = 1;
  return 0;
}
uint32_t cuptiSubscribe_v2(size_t *subscriber, function called) { return cuptiSubscribe(subscriber, called); }
uint32_t cuptiUnsubscribe(void) { return 0; }
uint32_t cuptiActivityRegisterCallbacks(function requested, function completed) {
  stub_requested = requested;
  stub_completed = completed;
  return 0;
}
uint32_t cuptiActivityRegisterCallbacks_v2(size_t subscriber, function requested, function completed) {
  (void)subscriber;
  stub_requested_second = requested;
  stub_completed_second = completed;
  return 0;
}
uint32_t cuptiActivityEnable(void) { return 0; }
uint32_t cuptiActivityEnable_v2(void) { return 0; }
uint32_t cuptiActivityDisable(void) { return 0; }
uint32_t cuptiActivityDisable_v2(void) { return 0; }
uint32_t cuptiActivitySetAttribute(void) { return 0; }
uint32_t cuptiActivitySetAttribute_v2(void) { return 0; }
uint32_t cuptiActivityFlushAll(void) { return 0; }
uint32_t cuptiEnableCallback(void) { return 0; }
uint32_t cuptiActivityPushExternalCorrelationId(void) { return 0; }
uint32_t cuptiActivityPushExternalCorrelationId_v2(void) { return 0; }
uint32_t cuptiActivityPopExternalCorrelationId(void) { return 0; }
uint32_t cuptiActivityPopExternalCorrelationId_v2(void) { return 0; }
uint32_t cuptiGetGraphNodeId(size_t node, uint64_t *id) {
  *id = node;
  return 0;
}
static uint32_t none(size_t *count) {
  *count = 0;
  return 0;
}
uint32_t cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count) {
  (void)context, (void)stream;
  return none(count);
}
uint32_t cuptiActivityGetNumDroppedRecords_v2(size_t subscriber, void *context, uint32_t stream, size_t *count) {
  (void)subscriber, (void)context, (void)stream;
  return none(count);
}
uint32_t cuptiGetStreamIdEx(size_t context, size_t stream, uint8_t per_thread, uint32_t *id) {
  (void)context, (void)stream, (void)per_thread;
  *id = 7;
  return 0;
}
uint32_t cuptiGetContextId(size_t context, uint32_t *id) {
  (void)context;
  *id = 1;
  return 0;
}
