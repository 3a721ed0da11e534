/*
 * Activation statistics of a model: what calibration gathered about the input of every matrix, and the file that keeps it.
 *
 * The file is a GGUF that is also an importance matrix of llama.cpp (general.type "imatrix"): llama-quantize reads it, and files of llama-imatrix
 * (GGUF, or the old .dat) are read here; they have sums of squares only. Per matrix `<name>`:
 *
 *   <name>.in_sum2      F32 (n_cols, n_mats)   sum over tokens of x^2, per input column; n_mats > 1 for stacked experts
 *   <name>.counts       F32 (1, n_mats)        tokens behind the sum
 *   <name>.in_max       F32 (n_cols)           largest |x|                                                                 (ours, optional)
 *   <name>.row_weight   F32 (n_rows)           f_r / mean f of role 0, see below                                          (ours, optional)
 *   <name>.row_weight_1 F32 (n_rows)           of role 1
 *   <name>.<hessian>    F32 (n (n + 1) / 2)    upper triangle by rows of a symmetric (n_cols, n_cols) matrix, mean over tokens (ours, optional)
 *
 * Hessians: see ht_hessian_kind. A matrix has a role for every place where its error reaches the output; each role has a Hessian and a weight
 * per row, and the estimated KL divergence (nats per token) that an error dw of the matrix causes is
 *
 *   1/2 * sum over roles, rows r of row_weight[r] * dw_r H dw_r^T
 *
 * Linears and output.weight have role 0 alone (inputs weighted by gradient energy, rows by their share of it). token_embd.weight has role 1 (H: mean
 * of g g^T with the gradient g where it leaves the embedding; row weight: the share of tokens that are r), and role 0 too when it is also the
 * output matrix. Facts and measurements: docs/measured.md; the guided Hessian follows the Fisher matrix with labels sampled from the model.
 */
#ifndef HT_QUANT_STATISTICS_H
#define HT_QUANT_STATISTICS_H

#include "formats/base/ctx.h"
#include "formats/source.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Key of the tokens that nothing was fitted to (i32 array, chunks of imatrix.chunk_size), for measuring files on them. */
#define HT_KEY_HELD_OUT_IDS "halftone.calibration.held_out_ids"

typedef enum ht_hessian_kind {
    HT_HESSIAN_PLAIN,      /* "hessian"         mean of x x^T                                                    */
    HT_HESSIAN_GUIDED,     /* "hessian_guided"  mean of s x x^T, s = mean over rows of the squared output gradient */
    HT_HESSIAN_GUIDED_1,   /* "hessian_guided_1" of role 1                                                       */
    HT_HESSIAN_HELD_OUT,   /* "hessian_held"    as guided, over the tokens that are kept for checking            */
    HT_HESSIAN_HELD_OUT_1, /* "hessian_held_1"                                                                   */
    HT_HESSIAN_COUNT
} ht_hessian_kind;

const char* ht_hessian_suffix(ht_hessian_kind kind);

typedef struct ht_statistics ht_statistics;

/* Statistics of one matrix; everything but the Hessians is in memory. */
typedef struct ht_statistics_entry {
    char          name[HT_GGUF_MAX_NAME + 1]; /* of the weight: "blk.0.attn_q.weight"           */
    int64_t       n_cols, n_mats;
    int64_t       n_rows;                     /* 0 when the file does not tell (imatrix)        */
    const double* sum_sq;                     /* (n_mats, n_cols)                               */
    const double* counts;                     /* (n_mats)                                       */
    const float*  max_abs;                    /* (n_cols), or NULL                              */
    const float*  row_weight[2];              /* (n_rows) per role, or NULL                     */
    bool          has_hessian[HT_HESSIAN_COUNT];
} ht_statistics_entry;

/*
 * Reads GGUF (of calibrate or llama-imatrix) or the old .dat, told apart by their first bytes. Hostile input: lengths, names, counts are checked;
 * NaN, Inf, negative sums or counts, or sums without tokens are NUMERIC, naming entry and index, unless `sanitize`, which sets the importance of the
 * whole entry to one and marks it (ht_statistics_n_sanitized). Zero tokens for a matrix is no error: see ht_statistics_importance.
 * Errors: IO, FORMAT, BOUNDS, NUMERIC, NOMEM. Entries are sorted by name.
 */
ht_status ht_statistics_open(ht_statistics** out, const char* path, bool sanitize, ht_error* err);
void      ht_statistics_close(ht_statistics* statistics); /* NULL allowed */

const char*                ht_statistics_path(const ht_statistics* statistics);
const ht_meta*             ht_statistics_meta(const ht_statistics* statistics);       /* of a .dat: what it tells, under the GGUF keys */
int64_t                    ht_statistics_n_entries(const ht_statistics* statistics);
const ht_statistics_entry* ht_statistics_at(const ht_statistics* statistics, int64_t index);
const ht_statistics_entry* ht_statistics_find(const ht_statistics* statistics, const char* name); /* NULL when absent */
int64_t                    ht_statistics_n_sanitized(const ht_statistics* statistics);

/*
 * Mean square per input column of matrix `mat`, n_cols values >= 0, as importance for the encoders. A matrix that saw no token gives ones.
 * Returns the number of columns that are zero (of a matrix that saw tokens).
 */
int64_t ht_statistics_importance(const ht_statistics_entry* entry, int64_t mat, float* importance);

/* The full symmetric matrix, (n_cols, n_cols) f32 owned by the caller. Thread-safe. Errors: ARG absent; IO; NUMERIC a value is not finite or a
 * diagonal element is negative. */
ht_status ht_statistics_read_hessian(const ht_statistics* statistics, const ht_statistics_entry* entry, ht_hessian_kind kind, float* out,
                                     ht_error* err);

/*
 * Whether the statistics are of this model: every entry must name a tensor of the source (output.weight of a tied model aside) with this row length
 * and number of matrices. All mismatches are in one message (a dozen, then their count) as "blk.0.attn_k.weight has 128 values, rows are 256 long".
 * With `ignore` they are warnings, and the entries are left out from then on. An entry that is missing for a quantizable matrix is a
 * warning (with the count). Zero columns, matrices that few tokens reached and those that none did are warnings, with their share. With `strict` a
 * quantizable matrix without an entry or without tokens is an error.
 * Errors: ARG mismatches; strict and not covered.
 */
ht_status ht_statistics_check(ht_statistics* statistics, const ht_source* source, bool ignore, bool strict, const ht_ctx* ctx, ht_error* err);

/* --- writing ------------------------------------------------------------------------------------------------------------------------ */

/*
 * A statistics file with its layout fixed beforehand: entries are declared, then parts are put in any order, then it is finished under its name.
 * Bytes do not depend on the order of calls. Not thread-safe.
 */
typedef struct ht_statistics_writer ht_statistics_writer;

/* What an entry will hold. `hessians`: bit mask of 1 << ht_hessian_kind. */
typedef struct ht_statistics_shape {
    char     name[HT_GGUF_MAX_NAME + 1];
    int64_t  n_cols, n_mats, n_rows;
    bool     has_max, has_row_weight[2];
    uint32_t hessians;
} ht_statistics_shape;

/* `meta`: the keys of the file, without general.type (added here). Errors as ht_out_file_create; ARG duplicate names. */
ht_status ht_statistics_writer_create(ht_statistics_writer** out, const char* path, const ht_meta* meta, const ht_statistics_shape* shapes,
                                      int64_t n_shapes, bool force, ht_error* err);
ht_status ht_statistics_writer_put_sums(ht_statistics_writer* w, const char* name, const double* sum_sq, const double* counts, ht_error* err);
ht_status ht_statistics_writer_put_max(ht_statistics_writer* w, const char* name, const float* max_abs, ht_error* err);
ht_status ht_statistics_writer_put_row_weight(ht_statistics_writer* w, const char* name, int role, const float* row_weight, ht_error* err);
/* `hessian` (n_cols, n_cols) f64, of which the upper triangle (j >= i) is read; every value is multiplied by `scale` (1 / tokens). */
ht_status ht_statistics_writer_put_hessian(ht_statistics_writer* w, const char* name, ht_hessian_kind kind, const double* hessian, double scale,
                                           ht_error* err);
/* Errors: ARG something declared was never put (named). Frees the writer either way; on failure nothing is left under the name. */
ht_status ht_statistics_writer_finish(ht_statistics_writer* w, ht_error* err);
void      ht_statistics_writer_discard(ht_statistics_writer* w); /* NULL allowed */

/* --- importance matrices -------------------------------------------------------------------------------------------------------------- */

/*
 * Sums of squares and counts of several files, added exactly (in f64, entries by name), as one importance matrix: `path` ending in .dat gives the
 * old form, all else GGUF. chunk counts add up; data set names are joined. Hessians are not merged and not written.
 * Errors: ARG an entry has different shapes in two files (both named); those of reading and writing.
 */
ht_status ht_statistics_merge(const ht_statistics* const* files, int n_files, const char* path, bool force, ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
