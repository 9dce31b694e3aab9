import PipelineCommand
import PipelineKit
import Stages

var registry = StageRegistry()
try BuiltInStages.register(in: &registry)
PipelineCommand.main(registry: registry)
