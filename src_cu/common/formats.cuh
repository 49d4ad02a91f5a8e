// Every number format: the dtypes of elements and scales choose one (common/formats/format.cuh).
#pragma once

#include "common/formats/fp8b128.cuh"
#include "common/formats/mxfp4.cuh"
#include "common/formats/mxfp8.cuh"
#include "common/formats/nvfp4.cuh"
