/*
 * Every encoder's source in one unit. The kernels of an instruction set are the reference's source under that set's compiler flags: the widths
 * of lanes.h follow the flags, the bytes do not. The includer defines HT_ENCODER.
 */
#include "quant/kernels/encode_variants.h"

#include "quant/encode_iq4_nl.c"
#include "quant/encode_iq4_xs.c"
#include "quant/encode_mxfp4.c"
#include "quant/encode_plain.c"
#include "quant/encode_q2_k.c"
#include "quant/encode_q3_k.c"
#include "quant/encode_q4_0.c"
#include "quant/encode_q4_1.c"
#include "quant/encode_q4_k.c"
#include "quant/encode_q5_0.c"
#include "quant/encode_q5_1.c"
#include "quant/encode_q5_k.c"
#include "quant/encode_q6_k.c"
#include "quant/encode_q8_0.c"
