// Operand lists of wgmma accumulators, 64 x N for every N up to 256 that is a multiple of 8.
//
// An asm statement must name all N / 2 registers. Each list extends the list of 8 columns less by four registers. So a width is one line
// here, and a header writes an instruction once for all widths:
//
//     ZOO_SUMS_16(ZOO_NUMBERS_OF, ZOO_AND)           "%0, %1, %2, %3" ", " "%4, %5, %6, %7"
//     ZOO_SUMS_16(ZOO_OPERANDS_OF, ZOO_COMMA)        "+f"(d[0]), ... , "+f"(d[7])
//     ZOO_FOR_EVERY_WIDTH(OF)                        OF(8, 4, 5, ...) ... OF(256, 128, 129, ...): the numbers of the operands after them
#pragma once

#define ZOO_NUMBERS_OF(I, J, K, L) "%" #I ", %" #J ", %" #K ", %" #L
#define ZOO_OPERANDS_OF(I, J, K, L) "+f"(d[I]), "+f"(d[J]), "+f"(d[K]), "+f"(d[L])
#define ZOO_AND() ", "
#define ZOO_COMMA() ,

#define ZOO_SUMS_8(FOUR, AND) FOUR(0, 1, 2, 3)
#define ZOO_SUMS_16(FOUR, AND) ZOO_SUMS_8(FOUR, AND) AND() FOUR(4, 5, 6, 7)
#define ZOO_SUMS_24(FOUR, AND) ZOO_SUMS_16(FOUR, AND) AND() FOUR(8, 9, 10, 11)
#define ZOO_SUMS_32(FOUR, AND) ZOO_SUMS_24(FOUR, AND) AND() FOUR(12, 13, 14, 15)
#define ZOO_SUMS_40(FOUR, AND) ZOO_SUMS_32(FOUR, AND) AND() FOUR(16, 17, 18, 19)
#define ZOO_SUMS_48(FOUR, AND) ZOO_SUMS_40(FOUR, AND) AND() FOUR(20, 21, 22, 23)
#define ZOO_SUMS_56(FOUR, AND) ZOO_SUMS_48(FOUR, AND) AND() FOUR(24, 25, 26, 27)
#define ZOO_SUMS_64(FOUR, AND) ZOO_SUMS_56(FOUR, AND) AND() FOUR(28, 29, 30, 31)
#define ZOO_SUMS_72(FOUR, AND) ZOO_SUMS_64(FOUR, AND) AND() FOUR(32, 33, 34, 35)
#define ZOO_SUMS_80(FOUR, AND) ZOO_SUMS_72(FOUR, AND) AND() FOUR(36, 37, 38, 39)
#define ZOO_SUMS_88(FOUR, AND) ZOO_SUMS_80(FOUR, AND) AND() FOUR(40, 41, 42, 43)
#define ZOO_SUMS_96(FOUR, AND) ZOO_SUMS_88(FOUR, AND) AND() FOUR(44, 45, 46, 47)
#define ZOO_SUMS_104(FOUR, AND) ZOO_SUMS_96(FOUR, AND) AND() FOUR(48, 49, 50, 51)
#define ZOO_SUMS_112(FOUR, AND) ZOO_SUMS_104(FOUR, AND) AND() FOUR(52, 53, 54, 55)
#define ZOO_SUMS_120(FOUR, AND) ZOO_SUMS_112(FOUR, AND) AND() FOUR(56, 57, 58, 59)
#define ZOO_SUMS_128(FOUR, AND) ZOO_SUMS_120(FOUR, AND) AND() FOUR(60, 61, 62, 63)
#define ZOO_SUMS_136(FOUR, AND) ZOO_SUMS_128(FOUR, AND) AND() FOUR(64, 65, 66, 67)
#define ZOO_SUMS_144(FOUR, AND) ZOO_SUMS_136(FOUR, AND) AND() FOUR(68, 69, 70, 71)
#define ZOO_SUMS_152(FOUR, AND) ZOO_SUMS_144(FOUR, AND) AND() FOUR(72, 73, 74, 75)
#define ZOO_SUMS_160(FOUR, AND) ZOO_SUMS_152(FOUR, AND) AND() FOUR(76, 77, 78, 79)
#define ZOO_SUMS_168(FOUR, AND) ZOO_SUMS_160(FOUR, AND) AND() FOUR(80, 81, 82, 83)
#define ZOO_SUMS_176(FOUR, AND) ZOO_SUMS_168(FOUR, AND) AND() FOUR(84, 85, 86, 87)
#define ZOO_SUMS_184(FOUR, AND) ZOO_SUMS_176(FOUR, AND) AND() FOUR(88, 89, 90, 91)
#define ZOO_SUMS_192(FOUR, AND) ZOO_SUMS_184(FOUR, AND) AND() FOUR(92, 93, 94, 95)
#define ZOO_SUMS_200(FOUR, AND) ZOO_SUMS_192(FOUR, AND) AND() FOUR(96, 97, 98, 99)
#define ZOO_SUMS_208(FOUR, AND) ZOO_SUMS_200(FOUR, AND) AND() FOUR(100, 101, 102, 103)
#define ZOO_SUMS_216(FOUR, AND) ZOO_SUMS_208(FOUR, AND) AND() FOUR(104, 105, 106, 107)
#define ZOO_SUMS_224(FOUR, AND) ZOO_SUMS_216(FOUR, AND) AND() FOUR(108, 109, 110, 111)
#define ZOO_SUMS_232(FOUR, AND) ZOO_SUMS_224(FOUR, AND) AND() FOUR(112, 113, 114, 115)
#define ZOO_SUMS_240(FOUR, AND) ZOO_SUMS_232(FOUR, AND) AND() FOUR(116, 117, 118, 119)
#define ZOO_SUMS_248(FOUR, AND) ZOO_SUMS_240(FOUR, AND) AND() FOUR(120, 121, 122, 123)
#define ZOO_SUMS_256(FOUR, AND) ZOO_SUMS_248(FOUR, AND) AND() FOUR(124, 125, 126, 127)

#define ZOO_FOR_EVERY_WIDTH(OF)                                                                                             \
    OF(8, 4, 5, 6, 7, 8, 9) OF(16, 8, 9, 10, 11, 12, 13) OF(24, 12, 13, 14, 15, 16, 17) OF(32, 16, 17, 18, 19, 20, 21)      \
    OF(40, 20, 21, 22, 23, 24, 25) OF(48, 24, 25, 26, 27, 28, 29) OF(56, 28, 29, 30, 31, 32, 33)                            \
    OF(64, 32, 33, 34, 35, 36, 37) OF(72, 36, 37, 38, 39, 40, 41) OF(80, 40, 41, 42, 43, 44, 45)                            \
    OF(88, 44, 45, 46, 47, 48, 49) OF(96, 48, 49, 50, 51, 52, 53) OF(104, 52, 53, 54, 55, 56, 57)                           \
    OF(112, 56, 57, 58, 59, 60, 61) OF(120, 60, 61, 62, 63, 64, 65) OF(128, 64, 65, 66, 67, 68, 69)                         \
    OF(136, 68, 69, 70, 71, 72, 73) OF(144, 72, 73, 74, 75, 76, 77) OF(152, 76, 77, 78, 79, 80, 81)                         \
    OF(160, 80, 81, 82, 83, 84, 85) OF(168, 84, 85, 86, 87, 88, 89) OF(176, 88, 89, 90, 91, 92, 93)                         \
    OF(184, 92, 93, 94, 95, 96, 97) OF(192, 96, 97, 98, 99, 100, 101) OF(200, 100, 101, 102, 103, 104, 105)                 \
    OF(208, 104, 105, 106, 107, 108, 109) OF(216, 108, 109, 110, 111, 112, 113) OF(224, 112, 113, 114, 115, 116, 117)       \
    OF(232, 116, 117, 118, 119, 120, 121) OF(240, 120, 121, 122, 123, 124, 125) OF(248, 124, 125, 126, 127, 128, 129)       \
    OF(256, 128, 129, 130, 131, 132, 133)
