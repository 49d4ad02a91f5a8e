/* Written by `zoo export`: the cubins, byte for byte. */
#ifdef __cplusplus
extern "C" {
#endif
@declarations@#ifdef __cplusplus
}
#endif
