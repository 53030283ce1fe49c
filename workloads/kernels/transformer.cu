// The kernels of a small decoder that cuBLAS does not have. All arrays are row-major; a row is one token of one
// sequence, and `context` rows are a sequence. Nothing here depends on the order of atomics but the loss.

#include "element.cuh"

// Cross-entropy by row. logits may be dlogits: each thread reads its own elements before it writes them, and the
// target's logit is read before the block meets.
template <class T>
static __device__ void cross_entropy_of(float *loss, T *dlogits, const T *logits, const int *targets, int rows,
                                        int classes, float scale, float gradient_scale) {
    float total = 0.0f;
    ROW_LOOP(row, rows) {
        const T *x = logits + (size_t)row * classes;
        T *dx = dlogits + (size_t)row * classes;
        int target = targets[row];
        bool counts = target >= 0 && target < classes;
        float of_target = counts ? load(x[target]) : 0.0f;
        float largest = Maximum::neutral();
        BLOCK_LOOP(c, classes) largest = fmaxf(largest, load(x[c]));
        largest = block_reduce<Maximum>(largest);
        float sum = 0.0f;
        BLOCK_LOOP(c, classes) sum += expf(load(x[c]) - largest);
        sum = block_sum(sum);
        float factor = counts ? scale * gradient_scale : 0.0f;
        BLOCK_LOOP(c, classes) {
            float probability = expf(load(x[c]) - largest) / sum;
            store(dx[c], factor * (probability - (c == target ? 1.0f : 0.0f)));
        }
        if (counts) total += logf(sum) + largest - of_target;
    }
    if (threadIdx.x == 0) atomicAdd(loss, scale * total);
}

// One block a word or a position: it looks for its rows and adds them in order.
template <class T>
static __device__ void embedding_backward_of(T *dtable, T *dpositions, const int *tokens, const T *dy, int rows,
                                             int context, int width, int vocabulary) {
    ROW_LOOP(item, vocabulary + context) {
        int position = item - vocabulary;
        BLOCK_LOOP(c, width) {
            float sum = 0.0f;
            if (position < 0) {
                for (int row = 0; row < rows; row++)
                    if (tokens[row] == item) sum += load(dy[(size_t)row * width + c]);
                store(dtable[(size_t)item * width + c], sum);
            } else {
                for (int row = position; row < rows; row += context) sum += load(dy[(size_t)row * width + c]);
                store(dpositions[(size_t)position * width + c], sum);
            }
        }
    }
}

template <class T>
static __device__ void layer_norm_of(T *y, float *mean, float *rstd, const T *x, const T *gamma, const T *beta, int rows,
                                     int cols) {
    ROW_LOOP(row, rows) {
        const T *in = x + (size_t)row * cols;
        T *out = y + (size_t)row * cols;
        float sum = 0.0f;
        BLOCK_LOOP(c, cols) sum += load(in[c]);
        float middle = block_sum(sum) / cols;
        // Two passes: the difference of large squares would lose what is small.
        float squares = 0.0f;
        BLOCK_LOOP(c, cols) {
            float difference = load(in[c]) - middle;
            squares += difference * difference;
        }
        float inverse = 1.0f / sqrtf(block_sum(squares) / cols + 1e-5f);
        BLOCK_LOOP(c, cols) store(out[c], (load(in[c]) - middle) * inverse * load(gamma[c]) + load(beta[c]));
        if (threadIdx.x == 0) {
            mean[row] = middle;
            rstd[row] = inverse;
        }
    }
}

// With x^ = (x - mean) * rstd and g = dy * gamma: dx = rstd * (g - mean(g) - x^ * mean(g * x^)).
template <class T>
static __device__ void layer_norm_backward_of(T *dx, const T *dy, const T *x, const float *mean, const float *rstd,
                                              const T *gamma, int rows, int cols) {
    ROW_LOOP(row, rows) {
        size_t start = (size_t)row * cols;
        float middle = mean[row], inverse = rstd[row];
        float sum = 0.0f, product = 0.0f;
        BLOCK_LOOP(c, cols) {
            float g = load(dy[start + c]) * load(gamma[c]);
            sum += g;
            product += g * (load(x[start + c]) - middle) * inverse;
        }
        sum = block_sum(sum) / cols;
        product = block_sum(product) / cols;
        BLOCK_LOOP(c, cols) {
            float g = load(dy[start + c]) * load(gamma[c]);
            float normal = (load(x[start + c]) - middle) * inverse;
            store(dx[start + c], inverse * (g - sum - normal * product));
        }
    }
}

static __device__ __forceinline__ float gelu_inner(float x) {
    // sqrt(2 / pi)
    return 0.7978845608f * (x + 0.044715f * x * x * x);
}

// Row r sees columns 0 to r % context.
template <class T>
static __device__ void causal_softmax_of(T *p, const T *scores, float scale, int rows, int context) {
    ROW_LOOP(row, rows) {
        const T *in = scores + (size_t)row * context;
        T *out = p + (size_t)row * context;
        int seen = row % context + 1;
        float largest = Maximum::neutral();
        BLOCK_LOOP(c, seen) largest = fmaxf(largest, scale * load(in[c]));
        largest = block_reduce<Maximum>(largest);
        float sum = 0.0f;
        BLOCK_LOOP(c, seen) sum += expf(scale * load(in[c]) - largest);
        sum = block_sum(sum);
        BLOCK_LOOP(c, context) store(out[c], c < seen ? expf(scale * load(in[c]) - largest) / sum : 0.0f);
    }
}

// dscores may be dp: each thread reads its own elements before it writes them.
template <class T>
static __device__ void causal_softmax_backward_of(T *dscores, const T *p, const T *dp, float scale, int rows,
                                                  int context) {
    ROW_LOOP(row, rows) {
        size_t start = (size_t)row * context;
        int seen = row % context + 1;
        float sum = 0.0f;
        BLOCK_LOOP(c, seen) sum += load(p[start + c]) * load(dp[start + c]);
        sum = block_sum(sum);
        BLOCK_LOOP(c, context)
        store(dscores[start + c], c < seen ? scale * load(p[start + c]) * (load(dp[start + c]) - sum) : 0.0f);
    }
}

template <class T>
static __device__ void permute_heads_of(T *out, const T *in, int batch, int context, int parts, int heads,
                                        int head_width, int inverse) {
    STRIDE_LOOP(i, batch * context * parts * heads * head_width) {
        // i counts in the order of [batch, context, parts, heads, head_width].
        int d = i % head_width, rest = i / head_width;
        int head = rest % heads;
        rest /= heads;
        int part = rest % parts;
        rest /= parts;
        int t = rest % context, b = rest / context;
        int by_head = (((part * batch + b) * heads + head) * context + t) * head_width + d;
        if (inverse) out[i] = in[by_head];
        else out[by_head] = in[i];
    }
}

#define KERNELS(suffix, T)                                                                                             \
    /* Adds scale * (negative log likelihood) over rows to *loss; dlogits is the loss's gradient by the logits, times */\
    /* gradient_scale. A row whose target is no class counts for nothing. */                                           \
    KERNEL cross_entropy##suffix(float *loss, T *dlogits, const T *logits, const int *targets, int rows, int classes,  \
                                 float scale, float gradient_scale) {                                                  \
        cross_entropy_of(loss, dlogits, logits, targets, rows, classes, scale, gradient_scale);                        \
    }                                                                                                                  \
    /* y[r] = table[tokens[r]] + positions[r % context] */                                                             \
    KERNEL embedding_forward##suffix(T *y, const int *tokens, const T *table, const T *positions, int rows,            \
                                     int context, int width) {                                                         \
        STRIDE_LOOP(i, rows * width) {                                                                                 \
            int row = i / width, c = i % width;                                                                        \
            store(y[i], load(table[(size_t)tokens[row] * width + c]) +                                                 \
                            load(positions[(size_t)(row % context) * width + c]));                                     \
        }                                                                                                              \
    }                                                                                                                  \
    /* The gradients of both tables, overwritten. */                                                                   \
    KERNEL embedding_backward##suffix(T *dtable, T *dpositions, const int *tokens, const T *dy, int rows, int context, \
                                      int width, int vocabulary) {                                                     \
        embedding_backward_of(dtable, dpositions, tokens, dy, rows, context, width, vocabulary);                       \
    }                                                                                                                  \
    /* y = (x - mean) * rstd * gamma + beta by row */                                                                  \
    KERNEL layer_norm##suffix(T *y, float *mean, float *rstd, const T *x, const T *gamma, const T *beta, int rows,     \
                              int cols) {                                                                              \
        layer_norm_of(y, mean, rstd, x, gamma, beta, rows, cols);                                                      \
    }                                                                                                                  \
    KERNEL layer_norm_backward##suffix(T *dx, const T *dy, const T *x, const float *mean, const float *rstd,           \
                                       const T *gamma, int rows, int cols) {                                           \
        layer_norm_backward_of(dx, dy, x, mean, rstd, gamma, rows, cols);                                              \
    }                                                                                                                  \
    /* The gradients of gamma and beta, overwritten. */                                                                \
    KERNEL layer_norm_gradients##suffix(T *dgamma, T *dbeta, const T *dy, const T *x, const float *mean,               \
                                        const float *rstd, int rows, int cols) {                                       \
        column_sums<2>(                                                                                                \
            rows, cols,                                                                                                \
            [=](int row, int column, float *sum) {                                                                     \
                size_t i = (size_t)row * cols + column;                                                                \
                sum[0] += load(dy[i]) * (load(x[i]) - mean[row]) * rstd[row];                                          \
                sum[1] += load(dy[i]);                                                                                 \
            },                                                                                                         \
            [=](int column, const float *sum) {                                                                        \
                store(dgamma[column], sum[0]);                                                                         \
                store(dbeta[column], sum[1]);                                                                          \
            });                                                                                                        \
    }                                                                                                                  \
    /* GELU in its tanh form */                                                                                        \
    KERNEL gelu##suffix(T *y, const T *x, int n) {                                                                     \
        STRIDE_LOOP(i, n) {                                                                                            \
            float value = load(x[i]);                                                                                  \
            store(y[i], 0.5f * value * (1.0f + tanhf(gelu_inner(value))));                                             \
        }                                                                                                              \
    }                                                                                                                  \
    /* dx *= gelu'(x) */                                                                                               \
    KERNEL gelu_backward##suffix(T *dx, const T *x, int n) {                                                           \
        STRIDE_LOOP(i, n) {                                                                                            \
            float value = load(x[i]), t = tanhf(gelu_inner(value));                                                    \
            float inner_slope = 0.7978845608f * (1.0f + 3.0f * 0.044715f * value * value);                             \
            store(dx[i], load(dx[i]) * (0.5f * (1.0f + t) + 0.5f * value * (1.0f - t * t) * inner_slope));             \
        }                                                                                                              \
    }                                                                                                                  \
    KERNEL causal_softmax##suffix(T *p, const T *scores, float scale, int rows, int context) {                         \
        causal_softmax_of(p, scores, scale, rows, context);                                                            \
    }                                                                                                                  \
    KERNEL causal_softmax_backward##suffix(T *dscores, const T *p, const T *dp, float scale, int rows, int context) {  \
        causal_softmax_backward_of(dscores, p, dp, scale, rows, context);                                              \
    }                                                                                                                  \
    /* [batch, context, parts, heads, head_width] to [parts, batch, heads, context, head_width], or back */            \
    KERNEL permute_heads##suffix(T *out, const T *in, int batch, int context, int parts, int heads, int head_width,    \
                                 int inverse) {                                                                        \
        permute_heads_of(out, in, batch, context, parts, heads, head_width, inverse);                                  \
    }

FOR_EACH_TYPE(KERNELS)
