// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected result ?x4, got ?x3
  %y = pebble.softmax %x : (tensor<?x4xf32>) -> tensor<?x3xf32>
  func.return
}

// -----

func.func @main(%x: tensor<4x?xf32>) {
  // CHECK: expected x with a known size of axis 1, got 4x?
  %y = pebble.log_softmax %x : (tensor<4x?xf32>) -> tensor<4x?xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %p: tensor<1xf32>) {
  // CHECK: expected scale 4, got 1
  %y = pebble.layer_norm %x scale %p epsilon 1.0e-05 : (tensor<?x4xf32>, tensor<1xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<f32>, %p: tensor<1xf32>) {
  // CHECK: expected x of rank 1 or more, got scalar
  %y = pebble.rms_norm %x scale %p epsilon 1.0e-05 : (tensor<f32>, tensor<1xf32>) -> tensor<f32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %p: tensor<4xf32>) {
  // CHECK: expected result ?x4, got ?x3
  %y = pebble.batch_norm %x scale %p bias %p mean %p variance %p epsilon 1.0e-05 : (tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x3xf32>
  func.return
}

// -----

func.func @main(%x: tensor<4xf32>, %p: tensor<4xf32>) {
  // CHECK: expected x of rank 2 or more, got 4
  %y = pebble.batch_norm %x scale %p bias %p mean %p variance %p epsilon 1.0e-05 : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %p: tensor<3xf32>) {
  // CHECK: expected scale 4, got 3
  %y = pebble.batch_norm %x scale %p bias %p mean %p variance %p epsilon 1.0e-05 : (tensor<?x4xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x?xf32>) {
  // CHECK: expected x with a known size of axis 1, got ?x?
  %y = pebble.reduce_mean %x : (tensor<?x?xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected result ?x1, got ?x4
  %y = pebble.reduce_mean %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return
}
