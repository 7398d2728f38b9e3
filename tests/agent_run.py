"""The runs that tests of agents share: one in a corridor, and one of a text."""

from program import TINY, ProgramTest, english, merged, shared_folder, train_run

CORRIDOR = {
    "data": {"task": "corridor"},
    "corridor": {"longest": 5},
    "train": {"batch": 4, "block": 10, "updates": 12, "validate_every": 6, "checkpoint_every": 4},
    "actor_critic": {"validation_episodes": 5},
}


class AgentTest(ProgramTest):
    """A test that reads these runs; its module imports setUpModule too."""

    runs = None  # the folder of both

    def setUp(self):
        super().setUp()
        self.run_folder = self.runs / "corridor"


def setUpModule():
    AgentTest.runs = shared_folder()
    (AgentTest.runs / "text.txt").write_text(english(4000))
    train_run(AgentTest.runs / "corridor", merged(TINY, CORRIDOR))
    train_run(AgentTest.runs / "text", merged(TINY, {"data": {"path": "text.txt"}}))
