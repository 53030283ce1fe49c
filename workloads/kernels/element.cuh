// What all kernels share: the three element types, loops over elements and sums over a block.
//
// A kernel is a template over its element type; FOR_EACH_TYPE gives it a C name for each: the plain one for f32, with
// _bf16 and _f16 behind it for the other two. Arithmetic is always f32; a value is rounded once, when it is stored.
// Callers choose any grid and any block of whole warps, up to 1024 threads.

#define STRIDE_LOOP(i, n) for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)
#define BLOCK_LOOP(i, n) for (int i = threadIdx.x; i < (n); i += blockDim.x)
// One block a row: sums over a row are sums over a block.
#define ROW_LOOP(r, rows) for (int r = blockIdx.x; r < (rows); r += gridDim.x)

struct bf16 {
    unsigned short bits;
};

struct f16 {
    unsigned short bits;
};

static __device__ __forceinline__ float load(float value) { return value; }

static __device__ __forceinline__ float load(bf16 value) { return __uint_as_float((unsigned)value.bits << 16); }

static __device__ __forceinline__ float load(f16 value) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
}

static __device__ __forceinline__ void store(float &place, float value) { place = value; }

static __device__ __forceinline__ void store(bf16 &place, float value) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(place.bits) : "f"(value));
}

static __device__ __forceinline__ void store(f16 &place, float value) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(place.bits) : "f"(value));
}

struct Sum {
    static __device__ __forceinline__ float apply(float a, float b) { return a + b; }
    static __device__ __forceinline__ float neutral() { return 0.0f; }
};

struct Maximum {
    static __device__ __forceinline__ float apply(float a, float b) { return fmaxf(a, b); }
    static __device__ __forceinline__ float neutral() { return __int_as_float(0xff800000); }
};

// Reduces a value over the block, in an order that depends on the block's size alone; all threads get the result.
template <class Operation> static __device__ float block_reduce(float value) {
    __shared__ float of_warp[32];
    for (int offset = 16; offset > 0; offset /= 2)
        value = Operation::apply(value, __shfl_xor_sync(0xffffffffu, value, offset));
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < blockDim.x / 32 ? of_warp[threadIdx.x % 32] : Operation::neutral();
    for (int offset = 16; offset > 0; offset /= 2)
        value = Operation::apply(value, __shfl_xor_sync(0xffffffffu, value, offset));
    // The shared memory may be written again at once.
    __syncthreads();
    return value;
}

static __device__ __forceinline__ float block_sum(float value) { return block_reduce<Sum>(value); }

// Sums over rows of a few columns at a time. A warp has 32 neighbouring columns and every (warps)-th row, and the
// block then adds what its warps have; the order depends on the sizes alone. `of` gives an element by row and column
// (in COUNT parts), `done` takes a column's sums.
template <int COUNT, class Of, class Done> static __device__ void column_sums(int rows, int cols, Of of, Done done) {
    __shared__ float sums[COUNT][32][33];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (int first = blockIdx.x * 32; first < cols; first += gridDim.x * 32) {
        int column = first + lane;
        float sum[COUNT] = {};
        if (column < cols)
            for (int row = warp; row < rows; row += warps) of(row, column, sum);
        for (int part = 0; part < COUNT; part++) sums[part][warp][lane] = sum[part];
        __syncthreads();
        if (warp == 0 && column < cols) {
            for (int other = 1; other < warps; other++)
                for (int part = 0; part < COUNT; part++) sum[part] += sums[part][other][lane];
            done(column, sum);
        }
        __syncthreads();
    }
}

#define FOR_EACH_TYPE(define) define(, float) define(_bf16, bf16) define(_f16, f16)
#define KERNEL extern "C" __global__ void __launch_bounds__(1024)
