import PipelineCommand
import PipelineKit
import Stages

var registry = StageRegistry()
try BuiltInStages.register(in: &registry)
try registry.register(Soften.self)
PipelineCommand.main(registry: registry)
