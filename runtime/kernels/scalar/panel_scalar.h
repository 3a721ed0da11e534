/* The loop that all scalar kernels of rounded activations share. */
#ifndef HT_RUNTIME_PANEL_SCALAR_H
#define HT_RUNTIME_PANEL_SCALAR_H

#include "runtime/kernels/activations.h"
#include "runtime/kernels/variants.h"

/* The product of one weight row and one activation row. */
typedef float (*ht_dot_row_fn)(const void* w, ht_act_row a, int64_t n_cols);

static inline void ht_panel_each_pair(const ht_panel* p, ht_dot_row_fn dot_row, ht_act_row (*act_row)(void* base, int64_t n_cols))
{
    for (int64_t t = 0; t < p->n_tokens; t++) {
        /* the view's pointers are not const, but kernels only read through them */
        const ht_act_row a = act_row((void*)(uintptr_t)((const unsigned char*)p->a + (size_t)t * p->a_stride), p->n_cols);
        for (int64_t r = 0; r < p->n_rows; r++) {
            p->y[t * p->y_stride + r] = dot_row((const unsigned char*)p->w + (size_t)r * p->w_stride, a, p->n_cols);
        }
    }
}

#endif
