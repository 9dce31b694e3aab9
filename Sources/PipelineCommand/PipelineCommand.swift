// PipelineCommand
