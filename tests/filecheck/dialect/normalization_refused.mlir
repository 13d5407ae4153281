// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: result ?x3, expected ?x4
  %y = pebble.softmax %x : (tensor<?x4xf32>) -> tensor<?x3xf32>
  func.return
}

// -----

func.func @main(%x: tensor<4x?xf32>) {
  // CHECK: input 4x?, expected a known size of the last axis
  %y = pebble.log_softmax %x : (tensor<4x?xf32>) -> tensor<4x?xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %p: tensor<1xf32>) {
  // CHECK: parameter 1, expected 4
  %y = pebble.layer_norm %x scale %p epsilon 1.0e-05 : (tensor<?x4xf32>, tensor<1xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<f32>, %p: tensor<1xf32>) {
  // CHECK: input scalar, expected a known size of the last axis
  %y = pebble.rms_norm %x scale %p epsilon 1.0e-05 : (tensor<f32>, tensor<1xf32>) -> tensor<f32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %p: tensor<4xf32>) {
  // CHECK: result ?x3, expected ?x4
  %y = pebble.batch_norm %x scale %p bias %p mean %p variance %p epsilon 1.0e-05 : (tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x3xf32>
  func.return
}

// -----

func.func @main(%x: tensor<4xf32>, %p: tensor<4xf32>) {
  // CHECK: input 4, expected rank 2 or more
  %y = pebble.batch_norm %x scale %p bias %p mean %p variance %p epsilon 1.0e-05 : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %p: tensor<3xf32>) {
  // CHECK: parameter 3, expected 4
  %y = pebble.batch_norm %x scale %p bias %p mean %p variance %p epsilon 1.0e-05 : (tensor<?x4xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x?xf32>) {
  // CHECK: input ?x?, expected a known size of the last axis
  %y = pebble.reduce_mean %x : (tensor<?x?xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: result ?x4, expected the last axis to be 1
  %y = pebble.reduce_mean %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return
}
