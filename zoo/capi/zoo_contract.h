/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers that zoo.c and the tables of `zoo export` share with zoo/contract. Written by tools/generate_docs.py from
 * zoo/contract/{chips,dtypes,expressions,limits,schema,tensor_map}.py; do not edit.
 */
#ifndef ZOO_CONTRACT_H
#define ZOO_CONTRACT_H
/* clang-format off */

/* `zoo export` refuses a kernel that needs more. */
enum {
    ZOO_MOST_SYMBOLS = 256,
    ZOO_MOST_ARGUMENTS = 48,
    ZOO_MOST_OPTIONS = 16,
    ZOO_MOST_CONSTANTS = 32,
    ZOO_MOST_DIMENSIONS = 8,
    ZOO_MOST_PARAMETERS = 64,
    ZOO_MOST_BLOCK_BYTES = 4096,
    ZOO_MOST_STACK = 32,
    ZOO_MOST_TENSOR_MAPS = 16
};

/* of grids, clusters, shared memory and tensor maps: zoo/contract/limits.py says what each is */
enum {
    ZOO_LIMIT_GRID_X = 2147483647,
    ZOO_LIMIT_GRID_Y = 65535,
    ZOO_LIMIT_GRID_Z = 65535,
    ZOO_LIMIT_CLUSTER = 16,
    ZOO_LIMIT_PERSISTENT_CLUSTER = 4,
    ZOO_LIMIT_SHARED = 232448,
    ZOO_LIMIT_MAP_EXTENT_BITS = 32,
    ZOO_LIMIT_MAP_STRIDE_BITS = 40,
    ZOO_LIMIT_MAP_BOX = 256,
    ZOO_LIMIT_MAP_STEP = 8,
    ZOO_LIMIT_MAP_ALIGNMENT = 16,
    ZOO_LIMIT_MAP_BOX_ROW = 16,
    ZOO_LIMIT_MAP_PACKED_ALIGNMENT = 32,
    ZOO_LIMIT_MAP_PACKED_ROW = 128
};

/* dtype(name, bytes, DLPack's code, bits and lanes, whether plain bytes may carry it) */
#define ZOO_DTYPES(dtype) \
    dtype("bf16", 2, 4, 16, 1, false) \
    dtype("f16", 2, 2, 16, 1, false) \
    dtype("f32", 4, 2, 32, 1, false) \
    dtype("e4m3", 1, 10, 8, 1, true) \
    dtype("e5m2", 1, 12, 8, 1, true) \
    dtype("ue8m0", 1, 14, 8, 1, true) \
    dtype("e2m1x2", 1, 17, 4, 2, true) \
    dtype("u8", 1, 1, 8, 1, false) \
    dtype("i32", 4, 0, 32, 1, false) \
    dtype("i64", 8, 0, 64, 1, false)
enum {
    ZOO_DTYPE_BF16 = 0,
    ZOO_DTYPE_F16 = 1,
    ZOO_DTYPE_F32 = 2,
    ZOO_DTYPE_E4M3 = 3,
    ZOO_DTYPE_E5M2 = 4,
    ZOO_DTYPE_UE8M0 = 5,
    ZOO_DTYPE_E2M1X2 = 6,
    ZOO_DTYPE_U8 = 7,
    ZOO_DTYPE_I32 = 8,
    ZOO_DTYPE_I64 = 9
};

/* of expressions: they take what is on the stack, unless they have an operand */
enum {
    ZOO_DO_CONSTANT = 0,
    ZOO_DO_LOAD = 1,
    ZOO_DO_ADD = 2,
    ZOO_DO_SUBTRACT = 3,
    ZOO_DO_MULTIPLY = 4,
    ZOO_DO_FLOOR_DIVIDE = 5,
    ZOO_DO_MODULO = 6,
    ZOO_DO_NEGATE = 7,
    ZOO_DO_NOT = 8,
    ZOO_DO_EQUAL = 9,
    ZOO_DO_NOT_EQUAL = 10,
    ZOO_DO_LESS = 11,
    ZOO_DO_LESS_EQUAL = 12,
    ZOO_DO_GREATER = 13,
    ZOO_DO_GREATER_EQUAL = 14,
    ZOO_DO_MINIMUM = 15,
    ZOO_DO_MAXIMUM = 16,
    ZOO_DO_CEIL_DIV = 17,
    ZOO_DO_ROUND_UP = 18,
    ZOO_DO_TRUTH = 19,
    ZOO_DO_JUMP = 20,
    ZOO_DO_JUMP_IF_ZERO = 21
};

typedef enum {
    ZOO_POINTER = 0,
    ZOO_I32 = 1,
    ZOO_I64 = 2,
    ZOO_F32 = 3,
    ZOO_TENSOR_MAP = 4
} zoo_parameter_kind;

typedef enum {
    ZOO_ACCESS_READ = 0,
    ZOO_ACCESS_WRITE = 1,
    ZOO_ACCESS_READ_WRITE = 2,
    ZOO_ACCESS_WORKSPACE = 3
} zoo_access;

/* of chips, to which numbers of costs are proportional */
typedef enum {
    ZOO_RATE_NONE = 0,
    ZOO_RATE_MEMORY = 1,
    ZOO_RATE_MULTIPROCESSORS = 2,
    ZOO_RATE_TENSOR = 3
} zoo_rate;

/* An H200, by which zoo/contract/chips.py has the numbers of other chips */
enum {
    ZOO_H200_MULTIPROCESSORS = 132,
    ZOO_H200_CLOCK = 1980000,
    ZOO_H200_BANDWIDTH = 4800,
    ZOO_H200_MEMORY = 1000,
    ZOO_H200_BOTH = 26
};

/* in the driver's name of a part of a chip, behind the chip's */
#define ZOO_PART_OF_A_CHIP " MIG "

/* chip(its name, times as many cycles for a multiplication as an H200) */
#define ZOO_SLOW_TENSOR_CORES(chip) \
    chip("NVIDIA H20", 4) \
    chip("NVIDIA H20-3e", 4)

/* of tensor maps, by the driver's numbers; type(name, bits of an element in memory, whether it has NaN) */
#define ZOO_MAP_TYPES(type) \
    type("u8", 8, false) \
    type("u16", 16, false) \
    type("u32", 32, false) \
    type("i32", 32, false) \
    type("u64", 64, false) \
    type("i64", 64, false) \
    type("f16", 16, true) \
    type("f32", 32, true) \
    type("f64", 64, true) \
    type("bf16", 16, true) \
    type("f32_ftz", 32, true) \
    type("tf32", 32, true) \
    type("tf32_ftz", 32, true) \
    type("u4_align8", 4, false) \
    type("u4_align16", 4, false) \
    type("u6_align16", 6, false)
enum {
    ZOO_MAP_U8 = 0,
    ZOO_MAP_U16 = 1,
    ZOO_MAP_U32 = 2,
    ZOO_MAP_I32 = 3,
    ZOO_MAP_U64 = 4,
    ZOO_MAP_I64 = 5,
    ZOO_MAP_F16 = 6,
    ZOO_MAP_F32 = 7,
    ZOO_MAP_F64 = 8,
    ZOO_MAP_BF16 = 9,
    ZOO_MAP_F32_FTZ = 10,
    ZOO_MAP_TF32 = 11,
    ZOO_MAP_TF32_FTZ = 12,
    ZOO_MAP_U4_ALIGN8 = 13,
    ZOO_MAP_U4_ALIGN16 = 14,
    ZOO_MAP_U6_ALIGN16 = 15
};

/* swizzle(name, the most bytes of an inner row of the box; 0: any) */
#define ZOO_MAP_SWIZZLES(swizzle) \
    swizzle("none", 0) \
    swizzle("32B", 32) \
    swizzle("64B", 64) \
    swizzle("128B", 128) \
    swizzle("128B_atom_32B", 128) \
    swizzle("128B_atom_32B_flip_8B", 128) \
    swizzle("128B_atom_64B", 128)
enum {
    ZOO_SWIZZLE_NONE = 0,
    ZOO_SWIZZLE_32B = 1,
    ZOO_SWIZZLE_64B = 2,
    ZOO_SWIZZLE_128B = 3,
    ZOO_SWIZZLE_128B_ATOM_32B = 4,
    ZOO_SWIZZLE_128B_ATOM_32B_FLIP_8B = 5,
    ZOO_SWIZZLE_128B_ATOM_64B = 6
};

enum {
    ZOO_PROMOTE_NONE = 0,
    ZOO_PROMOTE_64B = 1,
    ZOO_PROMOTE_128B = 2,
    ZOO_PROMOTE_256B = 3
};

enum {
    ZOO_FILL_ZERO = 0,
    ZOO_FILL_NAN = 1
};

#endif
