/* What torch.autograd.profiler.emit_nvtx(record_shapes=True) of PyTorch 2 pushes around launches of kernels: two steps of a small
 * network, whose backward pass runs on a thread of its own, as autograd's does. */
#include "gpu.h"
#include <pthread.h>

static int op_id, sequence;

/* "NAME, op_id = N" and, where they are known, the sequence number before it and the sizes behind it. */
static void begin(const char *name, int seq, const char *sizes) {
  char text[512];
  int length = snprintf(text, sizeof text, "%s", name);
  if (seq >= 0) length += snprintf(text + length, sizeof text - length, ", seq = %d", seq);
  length += snprintf(text + length, sizeof text - length, ", op_id = %d", ++op_id);
  if (sizes) snprintf(text + length, sizeof text - length, ", sizes = %s, input_op_ids = [(0,-1), (%d,0)]", sizes, op_id - 1);
  nvtx_push(text);
}

static void ends(int count) {
  while (count-- > 0) nvtx_pop();
}

/* A node of the backward pass around one operator. */
static void backward(const char *node, int seq, const char *operator, const char *sizes, int kernels) {
  char text[128];
  snprintf(text, sizeof text, "autograd::engine::evaluate_function: %s", node);
  begin(text, seq, NULL);
  begin(node, seq, NULL);
  begin(operator, -1, sizes);
  gpu_launch(kernels);
  ends(3);
}

static void *autograd(void *nothing) {
  gpu_check(gpu_set_current(gpu_context), "cuCtxSetCurrent");
  backward("ReluBackward0", sequence + 1, "aten::threshold_backward", "[[64, 16], [64, 16], []]", 1);
  backward("AddmmBackward0", sequence, "aten::mm", "[[16, 64], [64, 32]]", 2);
  backward("torch::autograd::AccumulateGrad", -1, "aten::add_", "[[16, 32], [16, 32], []]", 1);
  return nothing;
}

int main(void) {
  gpu_start();
  nvtx_attach();
  for (int step = 0; step < 2; step++, sequence += 10) {
    char name[32];
    snprintf(name, sizeof name, "step %d", step);
    begin(name, -1, NULL);
    nvtx_push("nn.Module: Net_0");
    nvtx_push("nn.Module: Linear_0");
    begin("aten::linear", -1, "[[64, 32], [16, 32], [16]]");
    begin("aten::addmm", sequence, "[[16], [64, 32], [32, 16], [], []]");
    gpu_launch(2);
    ends(3);
    nvtx_push("nn.Module: ReLU_0");
    begin("aten::relu", sequence + 1, "[[64, 16]]");
    gpu_launch(1);
    ends(3);
    /* The program's own: neither is an operator. */
    nvtx_push("loss, seq = 5");
    gpu_launch(1);
    ends(1);
    pthread_t thread;
    gpu_check(pthread_create(&thread, NULL, autograd, NULL), "pthread_create");
    gpu_check(pthread_join(thread, NULL), "pthread_join");
    begin("Optimizer.step#SGD.step", -1, NULL);
    begin("aten::_foreach_add_", -1, "[[16, 32], [16], []]");
    gpu_launch(1);
    ends(2);
    ends(1);
  }
  gpu_say("operators");
  return 0;
}
