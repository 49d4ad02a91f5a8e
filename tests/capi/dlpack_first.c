/* A program whose own DLPack header came first, with its enumeration for devices. */
#define DLPACK_DLPACK_H_
#include <stdint.h>
#ifdef __cplusplus
typedef enum : int32_t { kDLCPU = 1, kDLCUDA = 2 } DLDeviceType;
#else
typedef enum { kDLCPU = 1, kDLCUDA = 2 } DLDeviceType;
#endif
typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;
typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} DLTensor;

#include "zoo.h"

#include <stdio.h>

int main(void)
{
    int64_t shape[1] = {4};
    DLTensor tensor = zoo_array(0, 3, "ue8m0", 1, shape);
    zoo_argument argument = zoo_tensor("x", &tensor);
    DLDevice device = argument.value.tensor->device;
    printf("%d %d %d %d %d\n", device.device_type, device.device_id, tensor.dtype.code, tensor.dtype.bits, zoo_abi_version());
    return 0;
}
