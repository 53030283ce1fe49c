// One pass over a gradient instead of three: undo the loss scale, look for an overflow, add to the accumulator.
//
// accumulator[i] += scale * gradient[i]; an element that is not finite after scaling adds nothing, and *overflow
// becomes 1. The adds are atomic, so that several streams may accumulate into the same vector at a time. Nobody reads
// what an atomicAdd returns, so each is a reduction that the L2 cache does by itself and no thread waits for. The flag
// is written once a block, and only by blocks that saw an overflow: a healthy step writes it never.

#include "element.cuh"

// Elements a thread loads before it adds: the loads of several cache lines are under way at once.
#define UNROLL 4

template <class T>
static __device__ void scale_accumulate_of(float *accumulator, const T *gradient, float scale, int n, int *overflow) {
    int overflowed = 0;
    // 64 bits: the last tile's end may lie beyond the largest int.
    long long tile = (long long)blockDim.x * UNROLL;
    for (long long first = blockIdx.x * tile; first < n; first += gridDim.x * tile) {
        float value[UNROLL];
#pragma unroll
        for (int j = 0; j < UNROLL; j++) {
            long long i = first + j * blockDim.x + threadIdx.x;
            value[j] = i < n ? scale * load(gradient[i]) : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < UNROLL; j++) {
            long long i = first + j * blockDim.x + threadIdx.x;
            // NaN compares false with everything.
            bool finite = fabsf(value[j]) <= 3.402823466e38f;
            if (!finite) overflowed = 1;
            else if (i < n) atomicAdd(&accumulator[i], value[j]);
        }
    }
    // Every thread of the block arrives here: the loop's bounds are the block's.
    if (__syncthreads_or(overflowed) && threadIdx.x == 0) atomicExch(overflow, 1);
}

#define KERNELS(suffix, T)                                                                                             \
    KERNEL scale_accumulate##suffix(float *accumulator, const T *gradient, float scale, int n, int *overflow) {        \
        scale_accumulate_of(accumulator, gradient, scale, n, overflow);                                                \
    }

FOR_EACH_TYPE(KERNELS)
