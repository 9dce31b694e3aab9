// PipelineKit
