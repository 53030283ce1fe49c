// What optimizers and mixed precision do to flat vectors. Parameters and optimizer state are f32.

#include "element.cuh"

// p -= rate * g
KERNEL sgd_step(float *p, const float *g, float rate, int n) { STRIDE_LOOP(i, n) p[i] -= rate * g[i]; }

// Adam (Kingma and Ba, algorithm 1), without weight decay. correction1 = 1 - beta1^t and correction2 = 1 - beta2^t
// undo the moments' start at zero.
KERNEL adam_step(float *p, const float *g, float *m, float *v, float rate, float beta1, float beta2, float eps,
                 float correction1, float correction2, int n) {
    STRIDE_LOOP(i, n) {
        m[i] = beta1 * m[i] + (1.0f - beta1) * g[i];
        v[i] = beta2 * v[i] + (1.0f - beta2) * g[i] * g[i];
        p[i] -= rate * (m[i] / correction1) / (sqrtf(v[i] / correction2) + eps);
    }
}

// *result += sum(x^2)
KERNEL sum_of_squares(float *result, const float *x, int n) {
    float sum = 0.0f;
    STRIDE_LOOP(i, n) sum += x[i] * x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) atomicAdd(result, sum);
}

#define CAST(name, From, To)                                                                                           \
    KERNEL name(To *out, const From *in, int n) { STRIDE_LOOP(i, n) store(out[i], load(in[i])); }

CAST(cast_f32_to_bf16, float, bf16)
CAST(cast_bf16_to_f32, bf16, float)
CAST(cast_f32_to_f16, float, f16)
CAST(cast_f16_to_f32, f16, float)
