// Every format, so that the dtypes of elements and scales choose one: common/formats/format.cuh says what of it.
#pragma once

#include "common/formats/fp8b128.cuh"
#include "common/formats/mxfp4.cuh"
#include "common/formats/mxfp8.cuh"
#include "common/formats/nvfp4.cuh"
