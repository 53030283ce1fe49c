// What the ring all-reduce adds whole numbers with.

#include "element.cuh"

// y += x, modulo 2^32
KERNEL add_i32(unsigned *y, const unsigned *x, int n) { STRIDE_LOOP(i, n) y[i] += x[i]; }
