// RUN: xdsl-opt %s --verify-diagnostics --parsing-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: expected 1 or more parts, got 0
  %y = pebble.linear %x, %w partition <0 parts, owners = dense<0> : tensor<1xi32>, volume = 0, messages = 0, most_connections = 0> : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: expected owners 0 to 1, got 2
  %y = pebble.linear %x, %w partition <2 parts, owners = dense<[0, 2]> : tensor<2xi32>, volume = 0, messages = 0, most_connections = 0> : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: expected integers of type i32 and rank 1, got tensor<2xi64>
  %y = pebble.linear %x, %w partition <2 parts, owners = dense<[0, 1]> : tensor<2xi64>, volume = 0, messages = 0, most_connections = 0> : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: expected volume of 0 or more, got -1
  %y = pebble.linear %x, %w partition <2 parts, owners = dense<[0, 1]> : tensor<2xi32>, volume = -1, messages = 0, most_connections = 0> : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: expected owners of 2 outputs, got 3
  %y = pebble.linear %x, %w partition <2 parts, owners = dense<[0, 1, 0]> : tensor<3xi32>, volume = 0, messages = 0, most_connections = 0> : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  func.return
}
