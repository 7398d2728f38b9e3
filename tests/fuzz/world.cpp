// World files of the instruction task: read, put into words, and played.
#include "fuzz.h"
#include "lapse/tasks/instruction_game.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = lapse::as_text(data, size);
  lapse::refused([&] {
    const lapse::LightWorld world = lapse::parse_light_world(text, "input");
    const lapse::InstructionWords words(world, "", 1000);
    lapse::InstructionGames games(world, words, {.rounds = 2}, lapse::Random(1, "games"));
    lapse::LogText log;
    for (int round = 0; round < 5; ++round) games.play(log);
    for (const int32_t word : log.words) words.vocabulary().decode(word);
  });
  return 0;
}
