// The kernels of a multilayer perceptron that cuBLAS does not have. All arrays are f32, row-major.
// Compiled to mlp.ptx by build.sh; callers choose any grid: every kernel strides over its elements.

#define STRIDE_LOOP(i, n) for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)

// y[r, c] += bias[c]
extern "C" __global__ void add_bias(float *y, const float *bias, int rows, int cols) {
    STRIDE_LOOP(i, rows * cols) y[i] += bias[i % cols];
}

// y[r, c] = max(y[r, c] + bias[c], 0)
extern "C" __global__ void add_bias_relu(float *y, const float *bias, int rows, int cols) {
    STRIDE_LOOP(i, rows * cols) y[i] = fmaxf(y[i] + bias[i % cols], 0.0f);
}

// dx[i] = 0 where the activation y[i] was cut off
extern "C" __global__ void relu_backward(float *dx, const float *y, int n) {
    STRIDE_LOOP(i, n) if (y[i] <= 0.0f) dx[i] = 0.0f;
}

// *loss += scale * sum((pred - target)^2), dpred = 2 * scale * (pred - target)
extern "C" __global__ void mse_loss(float *loss, float *dpred, const float *pred, const float *target, int n, float scale) {
    __shared__ float sums[32];
    float sum = 0.0f;
    STRIDE_LOOP(i, n) {
        float difference = pred[i] - target[i];
        sum += difference * difference;
        dpred[i] = 2.0f * scale * difference;
    }
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0.0f;
        for (int warp = 0; warp < blockDim.x / 32; warp++) total += sums[warp];
        atomicAdd(loss, scale * total);
    }
}

// db[c] = sum over r of dy[r, c]
extern "C" __global__ void bias_gradient(float *db, const float *dy, int rows, int cols) {
    STRIDE_LOOP(c, cols) {
        float sum = 0.0f;
        for (int r = 0; r < rows; r++) sum += dy[r * cols + c];
        db[c] = sum;
    }
}

// p -= learning_rate * g
extern "C" __global__ void sgd_step(float *p, const float *g, float learning_rate, int n) {
    STRIDE_LOOP(i, n) p[i] -= learning_rate * g[i];
}

// x *= factor
extern "C" __global__ void scale(float *x, float factor, int n) {
    STRIDE_LOOP(i, n) x[i] *= factor;
}
