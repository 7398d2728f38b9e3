#include "lapse/tasks/registry.h"

#include "lapse/tasks/collision.h"
#include "lapse/tasks/copy.h"
#include "lapse/tasks/instruction.h"
#include "lapse/tasks/long_copy.h"
#include "lapse/tasks/parity.h"
#include "lapse/tasks/variable_assignment.h"

namespace lapse {

const std::vector<TaskEntry>& task_table() {
  static const std::vector<TaskEntry> table = {
      {"variable_assignment", "say the last value of a variable that is assigned again and again",
       variable_assignment_options},
      {"copy", "repeat a random string", copy_options},
      {"parity", "the parity of all random bits so far, after each of them", parity_options},
      {"long_copy", "repeat the few A's seen very long ago (\"extremely long copy\")", long_copy_options},
      {"collision", "where did two particles of these colours collide last? (Sukhbaatar et al. 2021: Object Collision)",
       collision_options},
      {"instruction", "tell people, once they are met, what others asked long before (Sukhbaatar et al. 2021)",
       instruction_options},
  };
  return table;
}

}  // namespace lapse
