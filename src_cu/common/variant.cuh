// The types of a generated `struct Variant`: dtypes are empty tags that select code, options are enums of the same name.
#pragma once

#include <cstdint>

namespace zoo {

struct bf16;
struct f16;
struct f32;
struct e4m3;    // 8 bits, bias 7, largest 448, no infinity
struct e5m2;    // 8 bits, bias 15, largest 57344
struct e2m1x2;  // 4 bits, largest 6, two a byte, the even index in the low nibble
struct ue8m0;   // a scale: 2^(byte - 127), 255 = NaN
struct ue4m3;   // a scale: e4m3 without a sign
struct i32;
struct u8;

enum class Layout { plain, blocked, mn_major };
enum class Rounding { floor, rceil };
enum class Scaling { exact, pow2 };

}  // namespace zoo
