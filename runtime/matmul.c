/*
 * A parallel region of two steps: round the activations (tokens are the work items), then multiply (panels of PANEL_ROWS weight rows are). A panel
 * meets all tokens before the next one is taken, so weights come from memory once; it is small enough to stay in the caches meanwhile. In exact
 * compute the panel's rows are decoded to f32 first, once for all tokens.
 */
#include "runtime/matmul.h"

#include <assert.h>
#include <omp.h>

#include "formats/decode.h"
#include "runtime/kernels/activations.h"

/* Rows of a work item: 32 decoded rows of 4096 columns are 512 KiB, a quarter of a usual level-2 cache; small models still give each thread
 * tens of items. */
enum { PANEL_ROWS = 32 };

/* Products below which another thread does not pay: starting and joining it costs some microseconds, in which one thread makes about as many. */
enum { PRODUCTS_PER_THREAD = 1 << 17 };

/*
 * The scratch memory: | tokens rounded to Q8_0 | tokens rounded to Q8_K | one decoded panel per thread |
 */
typedef struct layout {
    size_t q8_0_stride, q8_k_stride, at_q8_k, at_panels, panel_bytes;
} layout;

static layout layout_of(int64_t n_cols, int64_t n_tokens)
{
    layout l;
    l.q8_0_stride = ht_act_row_bytes(HT_TYPE_q8_0, n_cols);
    l.q8_k_stride = ht_act_row_bytes(HT_TYPE_q8_k, n_cols);
    l.at_q8_k     = (size_t)n_tokens * l.q8_0_stride;
    l.at_panels   = l.at_q8_k + (size_t)n_tokens * l.q8_k_stride;
    l.panel_bytes = ht_act_align(PANEL_ROWS * (size_t)n_cols * sizeof(float));
    return l;
}

size_t ht_matmul_scratch_bytes(int64_t n_cols, int64_t n_tokens, int n_threads)
{
    const layout l = layout_of(n_cols, n_tokens);
    return l.at_panels + (size_t)n_threads * l.panel_bytes;
}

/* Whether a weight type takes the rounded path. */
static bool is_rounded(const ht_kernels* kernels, ht_compute compute, ht_type type)
{
    return compute == HT_COMPUTE_FAST && kernels->dot[type] && ht_kernels_act_type(type) != HT_TYPE_f32;
}

static void multiply_panel(const ht_kernels* kernels, ht_compute compute, const ht_matmul_job* job, int64_t row, const float* x,
                           int64_t n_tokens, unsigned char* scratch, const layout* l, float* decoded)
{
    const ht_matrix* w     = job->w;
    const int64_t    n     = w->n_rows - row < PANEL_ROWS ? w->n_rows - row : PANEL_ROWS;
    ht_panel         panel = { .w = (const unsigned char*)w->data + (size_t)row * w->row_bytes, .w_stride = w->row_bytes,
                               .a = x, .a_stride = (size_t)w->n_cols * sizeof(float), .y = job->y + row, .y_stride = w->n_rows,
                               .n_rows = n, .n_tokens = n_tokens, .n_cols = w->n_cols };
    ht_type type = w->type;
    if (is_rounded(kernels, compute, type)) {
        const bool k   = ht_kernels_act_type(type) == HT_TYPE_q8_k;
        panel.a        = k ? scratch + l->at_q8_k : scratch;
        panel.a_stride = k ? l->q8_k_stride : l->q8_0_stride;
    } else if (!kernels->dot[type] || ht_kernels_act_type(type) != HT_TYPE_f32) {
        const ht_decode_row_fn decode = ht_decode_row_get(type);
        for (int64_t r = 0; r < n; r++) {
            decode((const unsigned char*)panel.w + (size_t)r * w->row_bytes, decoded + r * w->n_cols, w->n_cols);
        }
        type           = HT_TYPE_f32;
        panel.w        = decoded;
        panel.w_stride = (size_t)w->n_cols * sizeof(float);
    }
    kernels->dot[type]->dot(&panel);
}

void ht_matmul(const ht_kernels* kernels, ht_compute compute, const ht_matmul_job* jobs, int n_jobs, const float* x, int64_t n_tokens,
               void* scratch, int n_threads)
{
    if (n_jobs == 0 || n_tokens == 0) { return; }
    const int64_t        n_cols = jobs[0].w->n_cols;
    const layout         l      = layout_of(n_cols, n_tokens);
    unsigned char* const base   = scratch;

    bool    need_q8_0 = false, need_q8_k = false;
    int64_t n_items = 0, n_rows = 0;
    for (int j = 0; j < n_jobs; j++) {
        assert(jobs[j].w->n_cols == n_cols);
        const bool rounded = is_rounded(kernels, compute, jobs[j].w->type);
        const ht_type act  = ht_kernels_act_type(jobs[j].w->type);
        need_q8_0          = need_q8_0 || (rounded && act == HT_TYPE_q8_0);
        need_q8_k          = need_q8_k || (rounded && act == HT_TYPE_q8_k);
        n_items += (jobs[j].w->n_rows + PANEL_ROWS - 1) / PANEL_ROWS;
        n_rows += jobs[j].w->n_rows;
    }
    const int64_t n_worth = 1 + n_rows * n_cols * n_tokens / PRODUCTS_PER_THREAD;

#pragma omp parallel num_threads(n_worth < n_threads ? (int)n_worth : n_threads)
    {
        float* const decoded = (float*)(void*)(base + l.at_panels + (size_t)omp_get_thread_num() * l.panel_bytes);
#pragma omp for schedule(static)
        for (int64_t t = 0; t < n_tokens; t++) {
            const float* row = x + t * n_cols;
            if (need_q8_0) { kernels->round[HT_TYPE_q8_0]->round(row, base + (size_t)t * l.q8_0_stride, n_cols); }
            if (need_q8_k) { kernels->round[HT_TYPE_q8_k]->round(row, base + l.at_q8_k + (size_t)t * l.q8_k_stride, n_cols); }
        }
#pragma omp for schedule(dynamic) nowait
        for (int64_t item = 0; item < n_items; item++) {
            int64_t panel = item;
            int     j     = 0;
            for (; panel >= (jobs[j].w->n_rows + PANEL_ROWS - 1) / PANEL_ROWS; j++) {
                panel -= (jobs[j].w->n_rows + PANEL_ROWS - 1) / PANEL_ROWS;
            }
            multiply_panel(kernels, compute, &jobs[j], panel * PANEL_ROWS, x, n_tokens, base, &l, decoded);
        }
    }
}
