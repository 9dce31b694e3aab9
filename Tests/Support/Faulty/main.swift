import PipelineCommand
import PipelineKit
import Stages

LedgerModes.run(CommandLine.arguments)

// The program, with one more stage: a test's way to crashes and hangs that no user can reach.
var registry = StageRegistry()
try BuiltInStages.register(in: &registry)
try registry.register(FaultStage.self)
PipelineCommand.main(registry: registry)
