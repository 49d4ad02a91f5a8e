// In the place of what some tiles have and others do not.
#pragma once

namespace zoo {

struct Nothing {};

}  // namespace zoo
