/* Written by `zoo export` from the manifest; see zoo_table.h. */
#include "zoo_table.h"

#include <stddef.h>

#include "cubins/cubins.h"

@definitions@
const zoo_kernel zoo_kernels[] = {
    @kernels@};
const int zoo_kernels_count = @kernel_count@, zoo_variants_count = @variant_count@;

const zoo_cubin zoo_cubins[] = {
    @cubins@};
const int zoo_cubins_count = @cubin_count@;
