/* Written by `zoo export`: the cubins, eight bytes a word, the first of them the lowest. */
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "these cubins are laid out for little-endian hosts, as all are that NVIDIA's driver runs on"
#endif

#ifdef __cplusplus
extern "C" {
#endif
@declarations@#ifdef __cplusplus
}
#endif
