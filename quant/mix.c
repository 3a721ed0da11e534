/*
 * For a price per byte each item takes the choice with the least cost + price * bytes; the price that just fits the budget is found by bisection. What is
 * left of the budget is spent on the upgrades that gain most per byte. All of it once per choice of the largest item.
 */
#include "quant/mix.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct solution {
    int*     choice;
    double   cost;
    uint64_t n_bytes;
} solution;

static void take_cheapest(const ht_mix_item* items, int64_t n, int64_t fixed, double price, solution* s)
{
    s->cost    = 0.0;
    s->n_bytes = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i != fixed) {
            double best = 0.0;
            for (int c = 0; c < items[i].n_choices; c++) {
                const double value = items[i].cost[c] + price * (double)items[i].n_bytes[c];
                const bool   ties  = c > 0 && value == best && items[i].n_bytes[c] < items[i].n_bytes[s->choice[i]];
                if (c == 0 || value < best || ties) {
                    best         = value;
                    s->choice[i] = c;
                }
            }
        }
        s->cost += items[i].cost[s->choice[i]];
        s->n_bytes += items[i].n_bytes[s->choice[i]];
    }
}

/* The upgrade with the most gain per byte that still fits, until there is none. */
static void spend_rest(const ht_mix_item* items, int64_t n, int64_t fixed, uint64_t budget, solution* s)
{
    for (;;) {
        double  best_rate = 0.0;
        int64_t best_item = -1;
        int     best_choice = 0;
        for (int64_t i = 0; i < n; i++) {
            const int now = s->choice[i];
            for (int c = 0; i != fixed && c < items[i].n_choices; c++) {
                if (items[i].n_bytes[c] <= items[i].n_bytes[now]) {
                    if (items[i].cost[c] < items[i].cost[now]) { /* smaller and better: no rate to compare */
                        best_item   = i;
                        best_choice = c;
                        best_rate   = 1e300;
                    }
                    continue;
                }
                const uint64_t more = items[i].n_bytes[c] - items[i].n_bytes[now];
                const double   rate = (items[i].cost[now] - items[i].cost[c]) / (double)more;
                if (s->n_bytes + more <= budget && rate > best_rate) {
                    best_rate   = rate;
                    best_item   = i;
                    best_choice = c;
                }
            }
        }
        if (best_item < 0) { return; }
        const ht_mix_item* item = &items[best_item];
        s->cost += item->cost[best_choice] - item->cost[s->choice[best_item]];
        s->n_bytes = s->n_bytes - item->n_bytes[s->choice[best_item]] + item->n_bytes[best_choice];
        s->choice[best_item] = best_choice;
    }
}

/* With `fixed` held at its choice; false when even the smallest choices of the rest do not fit. */
static bool solve_rest(const ht_mix_item* items, int64_t n, int64_t fixed, uint64_t budget, solution* s)
{
    double low = 0.0, high = 1.0;
    take_cheapest(items, n, fixed, low, s);
    if (s->n_bytes <= budget) { return true; }
    for (int k = 0; k < 400 && (take_cheapest(items, n, fixed, high, s), s->n_bytes > budget); k++) { high *= 10.0; }
    if (s->n_bytes > budget) { return false; }
    low = high * 1e-30;
    for (int k = 0; k < 200; k++) { /* prices span many decades: the middle is the geometric one */
        const double middle = low < high * 1e-15 ? high * 1e-3 : 0.5 * (low + high);
        take_cheapest(items, n, fixed, middle, s);
        if (s->n_bytes > budget) { low = middle; }
        else { high = middle; }
    }
    take_cheapest(items, n, fixed, high, s);
    spend_rest(items, n, fixed, budget, s);
    return true;
}

ht_status ht_mix_solve(const ht_mix_item* items, int64_t n_items, uint64_t budget, int* choice, ht_error* err)
{
    ht_status st      = HT_STATUS_OK;
    int64_t   biggest = 0;
    uint64_t  least   = 0;
    bool      found   = false;
    solution  best = { choice, 0.0, 0 }, trial = { calloc((size_t)n_items + 1, sizeof(int)), 0.0, 0 };
    HT_CHECK(trial.choice, NOMEM, "mix");
    for (int64_t i = 0; i < n_items; i++) {
        uint64_t smallest = UINT64_MAX, largest = 0, most = 0;
        for (int c = 0; c < items[i].n_choices; c++) {
            smallest = items[i].n_bytes[c] < smallest ? items[i].n_bytes[c] : smallest;
            largest  = items[i].n_bytes[c] > largest ? items[i].n_bytes[c] : largest;
        }
        for (int c = 0; c < items[biggest].n_choices; c++) { most = items[biggest].n_bytes[c] > most ? items[biggest].n_bytes[c] : most; }
        if (largest > most) { biggest = i; }
        least += smallest;
    }
    HT_CHECK(least <= budget, ARG, "the smallest types need %" PRIu64 " bytes, the budget is %" PRIu64, least, budget);
    for (int c = 0; n_items > 0 && c < items[biggest].n_choices; c++) {
        trial.choice[biggest] = c;
        if (!solve_rest(items, n_items, biggest, budget, &trial) || (found && trial.cost >= best.cost)) { continue; }
        memcpy(choice, trial.choice, (size_t)n_items * sizeof *choice);
        best.cost = trial.cost;
        found     = true;
    }
done:
    free(trial.choice);
    return st;
}
