// The kernels of a multilayer perceptron that cuBLAS does not have. All arrays are row-major.

#include "element.cuh"

#define KERNELS(suffix, T)                                                                                             \
    /* y[r, c] += bias[c] */                                                                                           \
    KERNEL add_bias##suffix(T *y, const T *bias, int rows, int cols) {                                                 \
        STRIDE_LOOP(i, rows * cols) store(y[i], load(y[i]) + load(bias[i % cols]));                                    \
    }                                                                                                                  \
    /* y[r, c] = max(y[r, c] + bias[c], 0) */                                                                          \
    KERNEL add_bias_relu##suffix(T *y, const T *bias, int rows, int cols) {                                            \
        STRIDE_LOOP(i, rows * cols) store(y[i], fmaxf(load(y[i]) + load(bias[i % cols]), 0.0f));                       \
    }                                                                                                                  \
    /* dx[i] = 0 where the activation y[i] was cut off */                                                              \
    KERNEL relu_backward##suffix(T *dx, const T *y, int n) {                                                           \
        STRIDE_LOOP(i, n) if (load(y[i]) <= 0.0f) store(dx[i], 0.0f);                                                  \
    }                                                                                                                  \
    /* y += x */                                                                                                       \
    KERNEL add##suffix(T *y, const T *x, int n) { STRIDE_LOOP(i, n) store(y[i], load(y[i]) + load(x[i])); }            \
    /* *loss += scale * sum((pred - target)^2), dpred = 2 * scale * gradient_scale * (pred - target) */                \
    KERNEL mse_loss##suffix(float *loss, T *dpred, const T *pred, const float *target, int n, float scale,             \
                            float gradient_scale) {                                                                    \
        mse_loss_of(loss, dpred, pred, target, n, scale, gradient_scale);                                              \
    }                                                                                                                  \
    /* db[c] = sum over r of dy[r, c] */                                                                               \
    KERNEL bias_gradient##suffix(T *db, const T *dy, int rows, int cols) {                                             \
        column_sums<1>(                                                                                                \
            rows, cols, [=](int row, int column, float *sum) { sum[0] += load(dy[(size_t)row * cols + column]); },     \
            [=](int column, const float *sum) { store(db[column], sum[0]); });                                         \
    }

template <class T>
static __device__ void mse_loss_of(float *loss, T *dpred, const T *pred, const float *target, int n, float scale,
                                   float gradient_scale) {
    float sum = 0.0f;
    STRIDE_LOOP(i, n) {
        float difference = load(pred[i]) - target[i];
        sum += difference * difference;
        store(dpred[i], 2.0f * scale * gradient_scale * difference);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) atomicAdd(loss, scale * sum);
}

FOR_EACH_TYPE(KERNELS)

// x *= factor
KERNEL scale(float *x, float factor, int n) { STRIDE_LOOP(i, n) x[i] *= factor; }
