/*
 * Calibration text: several sources of different kinds, cut into chunks of tokens, sampled evenly, with a share held out.
 *
 * A source is a file (plain or gzip, UTF-8), "-", a JSONL file (one object per line: its "text", or "prompt" + "completion", or the "content" of
 * "messages"), or a folder, whose text files are read in the order of their names. Each is tokenized on its own and cut into consecutive chunks of
 * n_ctx tokens as in perplexity.h (BOS in front where the model adds it), the tail dropped. Chunks are then taken from the sources in turn, spread
 * evenly over each source's length, until n_chunks are there or all are used; every held_every-th chunk of a source is held out.
 */
#ifndef HT_CALIB_TEXTS_H
#define HT_CALIB_TEXTS_H

#include "formats/base/ctx.h"
#include "runtime/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_calib_source {
    char    name[256];               /* as given                                     */
    char    sha256[65];              /* of the bytes read                            */
    int64_t n_tokens;                /* in the whole source                          */
    int64_t n_chunks, n_held_out;    /* taken; of them held out                      */
} ht_calib_source;

typedef struct ht_calib_texts {
    int64_t          n_ctx, n_chunks;
    int32_t*         ids;            /* (n_chunks, n_ctx)                            */
    bool*            is_held_out;    /* n_chunks                                     */
    int*             source_of;      /* n_chunks: index into sources                 */
    ht_calib_source* sources;        /* n_sources                                    */
    int              n_sources;
    char             sha256[65];     /* of ids and held-out flags: names the data    */
} ht_calib_texts;

typedef struct ht_calib_options {
    int64_t n_ctx;        /* >= 16                                                                                     */
    int64_t n_chunks;     /* at most so many; 0: all                                                                   */
    int64_t held_every;   /* of each source, chunk held_every - 1, 2 held_every - 1, … is held out; 0: none            */
    bool    parse_special;/* texts of control tokens become those tokens: for chat-formatted text                      */
} ht_calib_options;

/*
 * `paths` n_paths sources; "self" is not known here (self_text.h). Warnings to ctx->log: a source that gives more than half of the chunks while there
 * are several ("one kind of text dominates"); a single source ("one kind of text: what is fitted to it may not hold for others"); fewer
 * than 8192 tokens in all; a source that gives no chunk (its tokens and n_ctx are named); invalid UTF-8 (share of replaced bytes).
 * Errors: IO; FORMAT (a JSONL line that is not an object with text: line number; NUL bytes or a UTF-16 byte order mark: says what the text seems to
 * be; gzip); ARG no chunk at all ("N tokens are fewer than one chunk of n_ctx"), text that tokenizes to nothing; NOMEM.
 */
ht_status ht_calib_texts_read(ht_calib_texts* out, const char* const* paths, int n_paths, const ht_tokenizer* tokenizer,
                              const ht_calib_options* options, const ht_ctx* ctx, ht_error* err);

/* From one list of ids already at hand (the model's own text): a source called `name`, cut and held out alike. */
ht_status ht_calib_texts_from_ids(ht_calib_texts* out, const char* name, const int32_t* ids, int64_t n_ids, const ht_calib_options* options,
                                  const ht_ctx* ctx, ht_error* err);

/* All chunks of `a`, then those of `b`; `a` takes over and `b` becomes empty. n_ctx must be equal. */
ht_status ht_calib_texts_join(ht_calib_texts* a, ht_calib_texts* b, ht_error* err);
void      ht_calib_texts_deinit(ht_calib_texts* texts);

#ifdef __cplusplus
}
#endif
#endif
