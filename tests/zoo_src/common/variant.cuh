// The vocabulary of this tree's variants; a tree of tables brings its own.
#pragma once

namespace zoo {

struct bf16;
struct f32;
struct e4m3;
struct e2m1x2;
struct ue8m0;
struct u8;
struct i32;

enum class Layout { plain, blocked };

}  // namespace zoo
