// Empty stand-in for an optional member of a tile.
#pragma once

namespace zoo {

struct Nothing {};

}  // namespace zoo
