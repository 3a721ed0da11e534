#include "formats/pre_tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* Parts that recur. CASELESS is written out: a caseless group would also match U+017F, which stock readers do not. */
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define CASELESS "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define TAIL " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define TAIL_SLASH " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

const char ht_pre_gpt2_pattern[] = GPT2;

static const ht_pre_tokenizer table[] = {
    { { "llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2" },
      { CASELESS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" TAIL }, true, true },
    { { "dbrx", "smaug-bpe", "chatglm-bpe", "glm4" }, { CASELESS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" TAIL }, false, false },
    { { "qwen2", "deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2" },
      { CASELESS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" TAIL }, false, false },
    { { "qwen35" },
      { CASELESS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" },
      false, false },
    { { "gpt-2", "phi-2", "mpt", "olmo", "jais", "roberta-bpe", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "mellum", "exaone4",
        "trillion", "granite-docling", "gigachat" },
      { GPT2 }, false, false },
    { { "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2" }, { "\\p{N}", GPT2 }, false, false },
    { { "deepseek-v3", "hunyuan-dense", "joyai-llm" },
      { "\\p{N}{1,3}", "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|"
        "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" },
      false, false },
    { { "deepseek-coder" },
      { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[\xE4\xB8\x80-\xE9\xBE\xA5\xE0\xA0\x80-\xE4\xB8\x80\xEA\xB0\x80-\xED\x9F\xBF]+", "\\p{N}" },
      false, false },
    { { "tekken" }, { UPPER "*" LOWER "+|" UPPER "+" LOWER "*|\\p{N}|" TAIL_SLASH }, true, true },
    { { "gpt-4o", "llama4", "kanana2", "minimax-m2" },
      { UPPER "*" LOWER "+" CASELESS "?|" UPPER "+" LOWER "*" CASELESS "?|\\p{N}{1,3}|" TAIL_SLASH }, false, false },
    { { "falcon" }, { "[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]" }, false, false },
    { { "bloom", "poro-chat", "gpt3-finnish" },
      { " ?[^(\\s|.,!?\xE2\x80\xA6\xE3\x80\x82\xEF\xBC\x8C\xE3\x80\x81\xE0\xA5\xA4\xDB\x94\xD8\x8C)]+" }, false, false },
    { { "viking" }, { " ?[^(\\s|.,!?\xE2\x80\xA6\xE3\x80\x82\xEF\xBC\x8C\xE3\x80\x81\xE0\xA5\xA4\xDB\x94\xD8\x8C)]+", "\\p{N}" }, false, false },
    { { "default" }, { "[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]" }, false, false },
};
enum { N_ROWS = sizeof table / sizeof *table };

const ht_pre_tokenizer* ht_pre_tokenizer_find(const char* name)
{
    for (int r = 0; r < N_ROWS; r++) {
        for (int i = 0; i < HT_PRE_MAX_NAMES && table[r].names[i]; i++) {
            if (strcmp(table[r].names[i], name) == 0) { return &table[r]; }
        }
    }
    return NULL;
}

/* Replace every `from` by `to`; malloc'd, NULL when out of memory. */
static char* replaced(const char* text, const char* from, const char* to)
{
    const size_t n_from = strlen(from), n_to = strlen(to);
    char*        out  = malloc(strlen(text) * (n_to / n_from + 1) + n_to + 1);
    size_t       used = 0;
    while (out && *text) {
        if (strncmp(text, from, n_from) == 0) {
            memcpy(out + used, to, n_to);
            used += n_to;
            text += n_from;
        } else {
            out[used++] = *text++;
        }
    }
    if (out) { out[used] = '\0'; }
    return out;
}

/* As the table writes it. A last `|\s+` after GPT-2's look-ahead changes nothing, because the gap that it would match is a piece anyway. */
static char* canonical(const char* pattern)
{
    if (strcmp(pattern, GPT2 "|\\s+") == 0) { return strdup(GPT2); }
    return replaced(pattern, "(?i:'s|'t|'re|'ve|'m|'ll|'d)", CASELESS);
}

static bool row_matches(const ht_pre_tokenizer* row, char* const* patterns, size_t n_patterns)
{
    for (size_t i = 0; i < n_patterns; i++) {
        if (!row->patterns[i] || strcmp(row->patterns[i], patterns[i]) != 0) { return false; }
    }
    return n_patterns == HT_PRE_MAX_PATTERNS || !row->patterns[n_patterns];
}

const ht_pre_tokenizer* ht_pre_tokenizer_match(const char* const* patterns, size_t n_patterns, bool ignore_merges)
{
    char*                   texts[HT_PRE_MAX_PATTERNS] = { 0 };
    bool                    complete = n_patterns > 0 && n_patterns <= HT_PRE_MAX_PATTERNS;
    const ht_pre_tokenizer* found    = NULL;
    for (size_t i = 0; complete && i < n_patterns; i++) {
        texts[i] = canonical(patterns[i]);
        complete = texts[i] != NULL;
    }
    for (int r = 0; complete && r < N_ROWS; r++) {
        if (!row_matches(&table[r], texts, n_patterns)) { continue; }
        if (!found || (found->ignore_merges != ignore_merges && table[r].ignore_merges == ignore_merges)) { found = &table[r]; }
    }
    for (size_t i = 0; i < HT_PRE_MAX_PATTERNS; i++) { free(texts[i]); }
    return found;
}
