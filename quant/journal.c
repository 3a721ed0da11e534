#include "quant/journal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/file.h"

typedef struct record {
    int64_t          tensor, output;
    ht_stream_tensor done;
} record;

struct ht_journal {
    char*   path;
    FILE*   file;
    record* records;
    int64_t n_records;
};

enum { KEY_BYTES = 4096 }; /* the text, padded with zeros: records start behind it */

/* Everything that the bytes of the outputs depend on, a line each. */
static ht_status describe(char key[KEY_BYTES], const ht_plan* plan, const ht_ctx* ctx, ht_error* err)
{
    ht_status             st = HT_STATUS_OK;
    const ht_calibration* c  = plan->calibration;
    char                  sha256[65];
    const char*           kind   = NULL; /* of the statistics; their names and texts stand in the headers */
    void*                 header = NULL;
    int                   used;
    memset(key, 0, KEY_BYTES);
    HT_TRY(ht_source_sha256(plan->source, sha256, err));
    HT_TRY(ht_meta_get_string(ht_statistics_meta(c->statistics), "halftone.calibration.kind", false, &kind, err));
    used = snprintf(key, KEY_BYTES, "halftone %s, records of %zu bytes\nsource %s\nmethod %s damping %g sweeps %d isa %s\nstatistics %.64s\n", HT_VERSION, sizeof(record),
                    sha256, ht_method_name(c->method), c->damping, c->n_sweeps, ht_isa_name(ctx->isa), kind ? kind : "importance");
    for (int k = 0; k < plan->n_outputs; k++) { /* its header names the types and sizes, the recipe and the calibration */
        HT_TRY(ht_plan_header(plan, k, NULL, &header, err));
        HT_TRY(ht_sha256_hex(sha256, header, plan->outputs[k].n_header_bytes, err));
        free(header);
        header = NULL;
        HT_CHECK(used + 80 < KEY_BYTES, ARG, "too many outputs for one run that can be resumed");
        used += snprintf(key + used, KEY_BYTES - (size_t)used, "output %s\n", sha256);
    }
done:
    free(header);
    return st;
}

static ht_status read_records(ht_journal* j, const char* key, const ht_plan* plan, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    char      found[KEY_BYTES + 1] = "";
    record    r;
    HT_CHECK(fread(found, 1, KEY_BYTES, j->file) == KEY_BYTES, ARG, "--resume: %s is cut short; start without --resume", j->path);
    for (size_t i = 0; i < KEY_BYTES; i++) {
        if (found[i] == key[i]) { continue; }
        while (i > 0 && key[i - 1] != '\n') { i--; }
        HT_CHECK(0, ARG, "--resume: %s belongs to another task (there \"%.*s\", here \"%.*s\"); start without --resume", j->path, (int)strcspn(found + i, "\n"), found + i,
                 (int)strcspn(key + i, "\n"), key + i);
    }
    while (fread(&r, sizeof r, 1, j->file) == 1) { /* the last may be cut short */
        if (r.tensor < 0 || r.tensor >= plan->n_tensors || r.output < 0 || r.output >= plan->n_outputs) { continue; }
        r.done.method[sizeof r.done.method - 1] = '\0';
        record* more = realloc(j->records, (size_t)(j->n_records + 1) * sizeof *more);
        HT_CHECK(more, NOMEM, "journal");
        j->records                 = more;
        j->records[j->n_records++] = r;
    }
    HT_CHECK(fseek(j->file, KEY_BYTES + (long)((size_t)j->n_records * sizeof r), SEEK_SET) == 0, IO, "cannot go on in %s: %s", j->path, strerror(errno));
done:
    return st;
}

ht_status ht_journal_open(ht_journal** out, const ht_plan* plan, bool resume, const ht_ctx* ctx, ht_error* err)
{
    ht_status    st = HT_STATUS_OK;
    char         key[KEY_BYTES];
    const size_t n_path = strlen(plan->outputs[0].path) + 16;
    ht_journal*  j = calloc(1, sizeof *j);
    HT_CHECK(j, NOMEM, "journal");
    j->path = malloc(n_path);
    HT_CHECK(j->path, NOMEM, "journal");
    snprintf(j->path, n_path, "%s.journal", plan->outputs[0].path);
    HT_TRY(describe(key, plan, ctx, err));
    if (resume && (j->file = fopen(j->path, "r+b"))) {
        HT_TRY(read_records(j, key, plan, err));
    } else {
        j->file = fopen(j->path, "w+b");
        HT_CHECK(j->file, IO, "cannot write %s: %s", j->path, strerror(errno));
        HT_CHECK(fwrite(key, 1, KEY_BYTES, j->file) == KEY_BYTES && fflush(j->file) == 0, IO, "cannot write %s: %s", j->path, strerror(errno));
    }
    *out = j;
    j    = NULL;
done:
    ht_journal_close(j, false);
    return st;
}

void ht_journal_close(ht_journal* j, bool remove)
{
    if (!j) { return; }
    if (j->file) { (void)fclose(j->file); }
    if (remove) { (void)unlink(j->path); }
    free(j->path);
    free(j->records);
    free(j);
}

const ht_stream_tensor* ht_journal_find(const ht_journal* j, int output, int64_t tensor)
{
    for (int64_t i = 0; i < j->n_records; i++) {
        if (j->records[i].output == output && j->records[i].tensor == tensor) { return &j->records[i].done; }
    }
    return NULL;
}

/* No fsync: what a power cut leaves out is found by the CRCs. */
ht_status ht_journal_add(ht_journal* j, int output, int64_t tensor, const ht_stream_tensor* done, ht_error* err)
{
    record r;
    memset(&r, 0, sizeof r); /* padding too */
    r.tensor = tensor;
    r.output = output;
    r.done   = *done;
    if (fwrite(&r, sizeof r, 1, j->file) == 1 && fflush(j->file) == 0) { return HT_STATUS_OK; }
    return ht_fail(err, HT_STATUS_IO, "cannot write %s: %s", j->path, strerror(errno));
}
