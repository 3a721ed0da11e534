/* What both kinds of tokenizer do: keep the pairs that may merge in a heap, merge the best, propose the new neighbours. */
#include <stdlib.h>

#include "runtime/vocab.h"

void ht_ids_push(ht_ids* ids, int32_t id)
{
    if (ids->failed) { return; }
    if (ids->n == ids->capacity) {
        const int64_t capacity = ids->capacity ? ids->capacity * 2 : 256;
        int32_t*      grown    = realloc(ids->data, (size_t)capacity * sizeof *grown);
        if (!grown) {
            ids->failed = true;
            return;
        }
        ids->data     = grown;
        ids->capacity = capacity;
    }
    ids->data[ids->n++] = id;
}

static bool is_before(const ht_pair* a, const ht_pair* b) { return a->key < b->key || (a->key == b->key && a->left < b->left); }

void ht_pair_heap_push(ht_pair_heap* heap, ht_pair pair)
{
    if (heap->failed) { return; }
    if (heap->n == heap->capacity) {
        const int64_t capacity = heap->capacity ? heap->capacity * 2 : 64;
        ht_pair*      grown    = realloc(heap->data, (size_t)capacity * sizeof *grown);
        if (!grown) {
            heap->failed = true;
            return;
        }
        heap->data     = grown;
        heap->capacity = capacity;
    }
    int64_t i = heap->n++;
    for (; i > 0 && is_before(&pair, &heap->data[(i - 1) / 2]); i = (i - 1) / 2) { heap->data[i] = heap->data[(i - 1) / 2]; }
    heap->data[i] = pair;
}

bool ht_pair_heap_pop(ht_pair_heap* heap, ht_pair* out)
{
    if (heap->n == 0) { return false; }
    *out               = heap->data[0];
    const ht_pair last = heap->data[--heap->n];
    int64_t       i    = 0;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= heap->n) { break; }
        if (child + 1 < heap->n && is_before(&heap->data[child + 1], &heap->data[child])) { child++; }
        if (!is_before(&heap->data[child], &last)) { break; }
        heap->data[i] = heap->data[child];
        i             = child;
    }
    if (heap->n > 0) { heap->data[i] = last; }
    return true;
}

void ht_merge_symbols(ht_symbol* symbols, ht_pair_heap* heap, ht_propose_fn propose, const void* user)
{
    ht_pair pair;
    while (ht_pair_heap_pop(heap, &pair)) {
        ht_symbol* left  = &symbols[pair.left];
        ht_symbol* right = &symbols[pair.right];
        if (left->n_bytes == 0 || right->n_bytes == 0 || left->n_bytes + right->n_bytes != pair.n_bytes) { continue; } /* one of them merged since */
        left->n_bytes  = pair.n_bytes;
        left->id       = pair.merged;
        left->next     = right->next;
        right->n_bytes = 0;
        if (right->next >= 0) { symbols[right->next].prev = pair.left; }
        if (left->prev >= 0) { propose(user, symbols, left->prev, pair.left, heap); }
        if (left->next >= 0) { propose(user, symbols, pair.left, left->next, heap); }
    }
}
